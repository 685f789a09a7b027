"""Replay benchmark: Starling's tables against other libraries, interleaved, medians.

    python benchmarks/replay.py --tianshou PYTHON --cpprb PYTHON --reverb PYTHON [--rounds 7] [--json FILE]

PYTHON is the interpreter of an environment with tianshou 2.0.1, cpprb 11, dm-reverb[tensorflow] 0.14. A peer that is
not given is left out. All contenders of a task are set up first; then each runs one short trial in turn, round after
round, so that a disturbance of the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("replay_workers.py")


class Contender:
    """One worker process."""

    def __init__(self, python: str, name: str, task: str) -> None:
        self.name = name
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [python, str(WORKER), name, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._expect("ready")

    def _expect(self, word: str | None = None) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (word is None and line.startswith("{")) or line.strip() == word:
                return line
        raise SystemExit(f"{self.name} ended early with code {self._process.wait()}")

    def trial(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        measured: dict[str, float] = json.loads(self._expect())
        return measured

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(contenders: list[tuple[str, str, str]], rounds: int) -> dict[str, dict[str, float]]:
    """Medians by contender; a contender is (interpreter, name, task)."""
    running = [Contender(*contender) for contender in contenders]
    try:
        trials: list[list[dict[str, float]]] = [[] for _ in running]
        for _ in range(rounds):
            for i, contender in enumerate(running):
                trials[i].append(contender.trial())
    finally:
        for contender in running:
            contender.close()
    labels = [name if task in ("prioritized", "remote") else f"{name} {task}" for _, name, task in contenders]
    return {
        label: {key: statistics.median(trial[key] for trial in of) for key in of[0]}
        for label, of in zip(labels, trials)
    }


def show(title: str, results: dict[str, dict[str, float]]) -> None:
    columns = list(next(iter(results.values())))
    print(f"\n{title}\n{'':24}" + "".join(f"{column:>16}" for column in columns))
    for name, row in results.items():
        print(f"{name:24}" + "".join(f"{row[column]:16,.4g}" for column in columns), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in ("tianshou", "cpprb", "reverb"):
        parser.add_argument(f"--{peer}", help=f"interpreter of an environment with {peer}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["prioritized", "adder", "images", "remote", "scale"], action="append")
    parser.add_argument("--json", type=Path, help="also write the medians to this file")
    options = parser.parse_args()
    wanted = options.only or ["prioritized", "adder", "images", "remote", "scale"]
    me, results = sys.executable, {}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if "prioritized" in wanted:
        peers = [(getattr(options, p), p, "prioritized") for p in ("tianshou", "cpprb") if getattr(options, p)]
        title = "prioritized sample(256) + update(256), 131,072 CartPole transitions"
        results["prioritized"] = compare([(me, "starling", "prioritized"), *peers], options.rounds)
        show(title, results["prioritized"])
        if peers:
            own, *others = (row["microseconds"] for row in results["prioritized"].values())
            print(f"{min(others) / own:.2f} × the better peer")
    if "adder" in wanted:
        tasks = [(me, "starling", "adder-1"), (me, "starling", "adder-64")]
        results["adder"] = compare(tasks, options.rounds)
        show("one vector step of CartPole through an adder into a table, 1 and 64 environments", results["adder"])
    if "images" in wanted:
        for task in ("images", "frames-first", "frames-last"):
            results[task] = compare([(me, "starling", task)], options.rounds)
            show(f"uniform sample(256) of 84×84×4 transitions, {task}", results[task])
            (row,) = results[task].values()
            print(f"{row['sampled GB/s'] / row['memcpy GB/s']:.2f} × memcpy")
    if "remote" in wanted:
        peers = [(options.reverb, "reverb", "remote")] if options.reverb else []
        mine = [(me, "starling", "remote"), (me, "starling", "remote-64")]
        results["remote"] = compare([*mine, *peers], options.rounds)
        show(
            "across processes, CartPole transitions (remote: one an insert; remote-64: vector steps)", results["remote"]
        )
        if peers:
            one, vector, reverb = results["remote"].values()
            for key in ("inserts/s", "samples/s"):
                print(f"{key}: {one[key] / reverb[key]:.1f} × and {vector[key] / reverb[key]:.1f} × reverb")
    if "scale" in wanted:
        sizes = (10**4, 10**5, 10**6, 10**7)
        results["scale"] = compare([(me, "starling", f"scale-{n}") for n in sizes], options.rounds)
        show("prioritized sample(256) + update(256) by size", results["scale"])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
