"""Distributed training: speed against RLlib and Sample Factory, scaling over actors, and the costs of its parts.

    python benchmarks/formations.py [--part speed|scaling|transport|apex|actor] [--rounds 3] [--peers DIR]

Contestants take turns, each in processes of its own; peers have a virtual environment each, made on the first run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
from environments import PEERS, peer_python
from timing import Verdict, finish, interleaved, median, seconds_per_call
from trained import train

HERE = Path(__file__).parent
ACTORS, ENVS, ROLLOUT = 2, 8, 16  # per actor, the same for everyone


def starling_impala(seconds: float) -> float:
    shape = {"formation": "actor_learner", "actors": ACTORS, "impala": {"envs": ACTORS * ENVS, "rollout": ROLLOUT}}
    return speed_of("impala", "CartPole-v1", seconds * 20_000, **shape)


def speed_of(algo: str, env: str, steps: float, **settings: object) -> float:
    """Steps a second of a run of Starling."""
    common = {"algo": algo, "env": env, "preset": "none", "eval_episodes": 0}
    return train({**common, "steps": int(steps), "log_every": max(1, int(steps / 40)), **settings}).speed


def rllib(python: str, seconds: float) -> float:
    arguments = [str(x) for x in (seconds, ACTORS, ENVS, ROLLOUT)]
    said = subprocess.run([python, str(PEERS / "rllib.py"), *arguments], check=True, capture_output=True, text=True)
    return float(json.loads(said.stdout.splitlines()[-1])["steps_per_second"])


def sample_factory(python: str, seconds: float) -> float:
    """Frames a second over ten seconds, as its own log tells."""
    arguments = [str(x) for x in (ACTORS, ENVS, ROLLOUT)]
    command = [python, str(PEERS / "sample_factory_appo.py"), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    found: list[float] = []
    until = time.monotonic() + 20 + seconds
    assert process.stdout is not None
    for line in process.stdout:
        speed = re.search(r"Fps is \(10 sec: ([\d.]+),", line)
        found += [float(speed[1])] if speed else []
        if time.monotonic() > until:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return max(found)


def speed(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """IMPALA on CartPole against RLlib's IMPALA and Sample Factory's APPO."""
    contestants = {
        "starling": lambda: starling_impala(seconds),
        "rllib": lambda: rllib(str(peer_python(peers, "rllib")), seconds),
        "sample-factory": lambda: sample_factory(str(peer_python(peers, "sample-factory")), seconds),
    }
    results = {name: median(found) for name, found in interleaved(contestants, rounds).items()}
    mine = results["starling"]
    return [
        Verdict(f"impala CartPole against {peer}", mine, results[peer], "steps/s", mine / results[peer], 5.0)
        for peer in ("rllib", "sample-factory")
    ]


def scaling(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """Two actor processes against one, with an environment that computes for two milliseconds a step."""

    def contest(actors: int) -> Callable[[], float]:
        shape = {"formation": "actor_learner", "actors": actors, "impala": {"envs": actors, "rollout": 20}}
        return lambda: speed_of("impala", "peers.slow_env:Slow-v0", seconds * 400 * actors, **shape)

    found = interleaved({"one": contest(1), "two": contest(2)}, rounds)
    one, two = median(found["one"]), median(found["two"])
    return [Verdict("two actors against one, 2 ms a step", two, one, "steps/s", two / one, 1.8)]


def transport(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """A rollout of 84×84×4 observations through a ring, in multiples of copying it once.

    It is copied into two buffers in turn, because a learner reads the last one while the next is written; copying over
    the same one again and again, which the cache makes faster, is noted.
    """
    from starling.core.lockfree import Pool

    rollout = {"obs": np.random.default_rng(0).integers(0, 255, (20, 8, 84, 84, 4), dtype=np.uint8)}
    lane = Pool("experience", rollout, senders=[0], depth=2, loans=1).lanes[0]
    buffers = [np.empty_like(rollout["obs"]) for _ in range(2)]
    turns = cycle(buffers)

    def move() -> None:
        lane.put(rollout)
        lane.take(borrow=True)

    def timed(fn: Callable[[], None]) -> Callable[[], float]:
        return lambda: 1e3 * seconds_per_call(fn, 20)  # in a row: in turns they would empty each other's caches

    contestants = {
        "moved": timed(move),
        "copied": timed(lambda: np.copyto(next(turns), rollout["obs"])),
        "copied over": timed(lambda: np.copyto(buffers[0], rollout["obs"])),
    }
    moved, copied, over = (median(found) for found in interleaved(contestants, max(15, rounds)).values())
    note = f"{moved / over:.2f}× copying over the same memory"
    what = "4.5 MB of frames from actor to learner"
    return [Verdict(what, moved, copied, "ms", moved / copied, 2.0, at_least=False, note=note)]


def apex(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """Steps of Ape-X while its learner learns, against those while it hardly does.

    It draws as often as in the paper, where 9.7k transitions a second were learned from for 12.5k that were played.
    """
    settings = {"envs": 16, "n_step": 3, "alpha": 0.6, "batch_size": 512, "hidden": (64, 64)}
    shape = {"formation": "apex", "actors": 2, "dqn": settings}

    def contest(ratio: float) -> Callable[[], float]:
        return lambda: speed_of("dqn", "CartPole-v1", seconds * 10_000, samples_per_insert=ratio, **shape)

    found = interleaved({"learning": contest(0.78), "playing": contest(0.01)}, rounds)
    learning, playing = median(found["learning"]), median(found["playing"])
    return [Verdict("Ape-X with its learner on, against off", learning, playing, "steps/s", learning / playing, 0.7)]


def actor(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """Memory and start of an actor that needs NumPy alone."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, str(PEERS / "actor.py"), str(time.time())]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    megabytes, start = (median([each[name] for each in found]) for name in ("megabytes", "seconds"))
    return [
        Verdict("memory of a NumPy actor's process", megabytes, None, "MB", megabytes, 60.0, at_least=False),
        Verdict("start of a NumPy actor's process", start, None, "s", start, 1.0, at_least=False),
    ]


PARTS = {"speed": speed, "scaling": scaling, "transport": transport, "apex": apex, "actor": actor}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="one or more; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".peers")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    verdicts = []
    for part in arguments.part or PARTS:
        verdicts += PARTS[part](arguments.rounds, arguments.seconds, arguments.peers)
    return finish("formations", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
