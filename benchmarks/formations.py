"""Distributed training: speed against RLlib and Sample Factory, scaling over actors, and the cost of transport.

    python benchmarks/formations.py [--part speed|scaling|transport|actor] [--rounds 3] [--seconds 15] [--peers DIR]

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
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import Verdict, finish, interleaved, median

HERE = Path(__file__).parent
PEERS = HERE / "peers"
ACTORS, ENVS, ROLLOUT = 2, 8, 16  # per actor, the same for everyone


def interpreter(name: str, directory: Path) -> str:
    """The Python of a peer's environment; made where it is missing."""
    place = directory / name
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"setting up {name} in {place} (some minutes)", flush=True)
        venv.create(place, with_pip=True)
        requirements = str(PEERS / f"requirements-{name}.txt")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        (place / "ready").touch()
    return str(python)


def ours(steps: int, **settings: object) -> dict[str, object]:
    """A run of Starling: its summary, and its last metrics."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "starling.cli.main", "train", "--quiet", "--eval-episodes", "0"]
        environment = {**os.environ, "PYTHONPATH": str(HERE)}  # for environments defined here
        subprocess.run(
            [*command, "--steps", str(steps), "--out", str(out), *flags],
            check=True,
            capture_output=True,
            env=environment,
        )
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return {"summary": json.loads((out / "summary.json").read_text()), "lines": lines}


def steady(run: dict) -> float:
    """Steps a second between the first fifth of a run, which compiles, and its end."""
    lines = run["lines"]
    first, last = lines[len(lines) // 5], lines[-1]
    return (last["env_steps"] - first["env_steps"]) / (last["seconds"] - first["seconds"])


def starling_impala(seconds: float) -> float:
    flags = {"algo": "impala", "env": "CartPole-v1", "preset": "none", "formation": "actor_learner", "actors": ACTORS}
    shape = {"impala.envs": ACTORS * ENVS, "impala.rollout": ROLLOUT}
    return steady(ours(int(seconds * 20_000), **flags, **shape, log_every=10_000))


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
        "rllib": lambda: rllib(interpreter("rllib", peers), seconds),
        "sample-factory": lambda: sample_factory(interpreter("sample-factory", peers), seconds),
    }
    results = {name: median(found) for name, found in interleaved(contestants, rounds).items()}
    mine = results["starling"]
    return [
        Verdict(f"impala CartPole against {peer}", mine, results[peer], "steps/s", mine / results[peer], 5.0)
        for peer in ("rllib", "sample-factory")
    ]


def scaling(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """Two actor processes against one, with an environment that computes for two milliseconds a step."""
    flags = {"algo": "impala", "env": "peers.slow_env:Slow-v0", "preset": "none", "formation": "actor_learner"}

    def contest(actors: int) -> Callable[[], float]:
        shape = {"impala.envs": actors, "impala.rollout": 20, "actors": actors, "log_every": 200}
        return lambda: steady(ours(int(seconds * 400 * actors), **flags, **shape))

    found = interleaved({"one": contest(1), "two": contest(2)}, rounds)
    one, two = median(found["one"]), median(found["two"])
    return [Verdict("two actors against one, 2 ms a step", two, one, "steps/s", two / one, 1.8)]


def transport(rounds: int, seconds: float, peers: Path) -> list[Verdict]:
    """A rollout of 84×84×4 observations through a ring, in multiples of copying it once."""
    from starling.executors.shared import Ring

    rollout = {"obs": np.random.default_rng(0).integers(0, 255, (20, 8, 84, 84, 4), dtype=np.uint8)}
    ring, target = Ring("experience", rollout, 2, 1), np.empty_like(rollout["obs"])
    moved, copied = [], []
    for _ in range(max(40, 20 * rounds)):
        begun = time.perf_counter()
        np.copyto(target, rollout["obs"])
        copied.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        ring.put(rollout)
        ring.take(borrow=True)
        moved.append(time.perf_counter() - begun)
    ours, copy = 1e3 * median(moved), 1e3 * median(copied)
    return [Verdict("4.5 MB of frames from actor to learner", ours, copy, "ms", ours / copy, 2.0, at_least=False)]


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


PARTS = {"speed": speed, "scaling": scaling, "transport": transport, "actor": actor}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="one or more; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv" / "peers")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    verdicts = []
    for part in arguments.part or PARTS:
        verdicts += PARTS[part](arguments.rounds, arguments.seconds, arguments.peers)
    return finish("formations", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
