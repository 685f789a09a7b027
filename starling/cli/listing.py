"""``starling list``."""

from __future__ import annotations

import json
from dataclasses import dataclass

import tyro

from starling.algorithms import ALGORITHMS
from starling.backends import available
from starling.components.specs import COMPONENTS
from starling.envs.making import environment_ids
from starling.experiments.presets import presets

__all__ = ["list"]


@dataclass(frozen=True)
class ListArguments:
    """List algorithms, components, environments, presets and backends."""

    json: bool = False  # print JSON


def list(args: list[str]) -> int:  # type: ignore[valid-type]
    """List what there is."""
    arguments = tyro.cli(ListArguments, args=args, prog="starling list")
    found = {
        "algorithms": {name: _first_line(cls) for name, cls in ALGORITHMS.items()},
        "components": {name: _first_line(cls) for name, cls in sorted(COMPONENTS.items())},
        "presets": {
            name: f"{p.settings['algo']} on {p.settings['env']}, {p.settings['steps']:,} steps"
            for name, p in presets().items()
        },
        "environments": dict.fromkeys(environment_ids(), ""),
        "backends": dict.fromkeys(available(), ""),
    }
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    for title, entries in found.items():
        print(f"{title} ({len(entries)})")
        if any(entries.values()):
            width = max(map(len, entries))
            print("\n".join(f"  {name:<{width}}  {text}" for name, text in entries.items()))
        else:
            print("  " + ", ".join(entries))
        print()
    return 0


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]
