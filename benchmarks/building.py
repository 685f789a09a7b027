"""Seconds to assemble and build each algorithm, beyond imports and compilation, each in a fresh process.

python benchmarks/building.py [--algo ppo] [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from timing import Verdict, finish, interleaved, median

ENVIRONMENTS = {"dqn": "CartPole-v1", "a2c": "CartPole-v1", "ppo": "CartPole-v1", "sac": "Pendulum-v1"}
REQUIRED = 2.0  # seconds
BACKENDS = ("jax", "torch")


def build_once(algo: str, backend: str) -> float:
    """Build ``algo`` in this process: seconds."""
    from starling.backends import get_backend
    from starling.components.graph.build import build
    from starling.envs import make
    from starling.experiments.config import resolve
    from starling.experiments.program import assemble_for

    run = resolve({"algo": algo, "env": ENVIRONMENTS[algo]})
    envs = make(run.options.env, 1, 0)
    chosen, acting = get_backend(backend), get_backend("numpy")
    chosen.from_numpy({}, chosen.devices()[:1])  # the framework looks for its devices on the first call
    started = time.perf_counter()
    assembly = assemble_for(run, envs.observation_space, envs.action_space)
    learns, acts = build(assembly, chosen), build(assembly, acting)
    state = learns.init(learns.initial)
    for graph, names in ((learns, ("update_at", "update_often")), (acts, ("act", "greedy"))):
        for name in names:
            graph.function(name)
    chosen.to_numpy(state)  # waits until it is there
    return time.perf_counter() - started


def in_fresh_process(algo: str, backend: str) -> float:
    command = [sys.executable, __file__, "--once", algo, backend]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description="Seconds to build each algorithm.")
    parser.add_argument("--algo", choices=ENVIRONMENTS, help="only this algorithm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", nargs=2, metavar=("ALGO", "BACKEND"), help="build once here and print the seconds")
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(build_once(*arguments.once)))
        return 0
    algos = [arguments.algo] if arguments.algo else list(ENVIRONMENTS)
    pairs = {f"{algo} on {backend}": (algo, backend) for algo in algos for backend in BACKENDS}
    timed = {name: (lambda pair=pair: in_fresh_process(*pair)) for name, pair in pairs.items()}
    medians = {name: median(seconds) for name, seconds in interleaved(timed, arguments.rounds).items()}
    verdicts = [Verdict(name, value, None, "s", value, REQUIRED, at_least=False) for name, value in medians.items()]
    return finish("assembling and building", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
