"""Parameters in shards: which server holds which, and how shards become a whole again."""

from __future__ import annotations

from starling.algorithms.gradient import STATISTICS
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.trees import Tree

__all__ = ["merged", "part_of", "shards_of", "state_part"]


def shards_of(sizes: dict[str, int], servers: int) -> list[set[str]]:
    """The parameters' paths, shared out so that the servers hold about as much each; statistics are with the first."""
    still = {path for path in sizes if path.split(".")[0] in STATISTICS}
    moving = {path: size for path, size in sizes.items() if path not in still}
    if servers > len(moving):
        raise ConfigError(f"servers={servers} for {len(moving)} parameter arrays; use at most one server for each.")
    shards: list[set[str]] = [set() for _ in range(servers)]
    loads = [0] * servers
    for path, size in sorted(moving.items(), key=lambda item: (-item[1], item[0])):
        least = loads.index(min(loads))
        shards[least].add(path)
        loads[least] += size
    shards[0] |= still
    return shards


def part_of(params: Tree, shard: set[str], path: str = "") -> Params:
    """The parameters of the shard; scopes stay even where they are empty."""
    found = Params()
    for name, child in params.items():
        here = f"{path}.{name}" if path else name
        if isinstance(child, dict):
            found[name] = part_of(child, shard, here)
        elif here in shard:
            found[name] = child
    return found


def state_part(state: Tree, shard: set[str]) -> Tree:
    """A learner's state with the parameters of the shard alone, and their copies and optimisers' slots."""
    optimisers = {
        name: {slot: part_of(kept, shard) if isinstance(kept, dict) else kept for slot, kept in slots.items()}
        for name, slots in state["optimisers"].items()
    }
    params, targets = part_of(state["params"], shard), part_of(state["targets"], shard)
    return {**state, "params": params, "targets": targets, "optimisers": optimisers}


def merged(parts: list[Tree]) -> Params:
    """The tree whose parts several servers hold."""
    whole = Params()

    def put(into: Params, part: Tree) -> None:
        for name, child in part.items():
            if isinstance(child, dict):
                put(into.setdefault(name, Params()), child)
            else:
                into[name] = child

    for part in parts:
        put(whole, part)
    return whole
