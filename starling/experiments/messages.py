"""What flows over the edges of a run: a blank message of each, from which memory is laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from starling.algorithms.plans import Replay
from starling.backends import get_backend
from starling.components.graph.build import build
from starling.core.trees import Tree
from starling.roles.chunks import blank_chunk

if TYPE_CHECKING:
    from starling.experiments.program import Program

__all__ = ["blank_messages"]


def blank_messages(program: Program) -> dict[str, Tree]:
    """By edge, or by (edge, source) where sources differ: ``weights/1``."""
    algorithm, formation = program.algorithm, program.formation
    if formation.name == "single":
        return {}
    acting = {"params": program.acting_part(program.initial)}
    chunk = blank_chunk(algorithm, program.acting_envs, program.chunk_length)
    if program.workers:
        return _of_servers(program)
    found: dict[str, Tree] = {"weights": acting, "experience": chunk}
    if program.learners > 1:
        found["agreement"] = {name: np.float64(0) for name in ("steps", "ready", "stop")}
        found["gradients"] = program.initial
    if formation.name == "central_inference":
        found |= _of_inference(program)
    if formation.name == "apex":
        found |= _of_buffers(program)
    return found


def _of_servers(program: Program) -> dict[str, Tree]:
    from starling.roles.gradients import Keeper
    from starling.roles.serving import nothing

    graph = build(program.assembly, get_backend("numpy"), program.run.options.seed)
    found: dict[str, Tree] = {}
    for index, shard in enumerate(program.shards):
        view = Keeper(graph, shard).view()
        found[f"weights/{index}"] = view
        found[f"gradients/{index}"] = {"gradients": view["params"], "about": nothing()}
    return found


def _of_inference(program: Program) -> dict[str, Tree]:
    algorithm, rows = program.algorithm, program.acting_envs
    noise = algorithm.act_noise(np.random.default_rng(0), (rows,))
    obs = algorithm.observation_space.ranked(batch=True).zeros((rows,))
    action = algorithm.action_space.ranked(batch=True).zeros((rows,))
    chosen = {"action": action, **algorithm.extras.ranked(batch=True).zeros((rows,))}
    request = {"kind": np.int64(0), "after": np.int64(0), "explore": np.float32(0), "obs": obs, "noise": noise}
    reply = {"version": np.int64(0), "chosen": chosen, "values": np.zeros(rows, np.float32)}
    return {"requests": request, "replies": reply}


def _of_buffers(program: Program) -> dict[str, Tree]:
    from starling.roles.serving import nothing

    algorithm = program.algorithm
    plan = algorithm.plan
    assert isinstance(plan, Replay)
    rows = plan.batch_size
    batch = plan.batch_space(algorithm.observation_space, algorithm.action_space, algorithm.extras).zeros((rows,))
    keys = np.zeros(rows, np.int64)
    return {
        "requests": {"rows": np.int64(0)},
        "samples": {"batch": batch, "keys": keys, "about": nothing()},
        "priorities": {"keys": keys, "priorities": np.zeros(rows, np.float32)},
    }
