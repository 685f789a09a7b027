"""Replay: Starling's tables against tianshou, cpprb, dm-reverb and memcpy, interleaved, medians.

    python benchmarks/replay.py [--only remote] [--rounds 7] [--peers DIR] [--json]

Each peer has a virtual environment of its own, made on the first run. All contenders of a task are set up first; then
each runs one short trial in turn, round after round, so that a disturbance of the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from environments import PEERS, peer_python
from timing import Verdict, finish, interleaved, median

OURS = "starling"
SIZES = (10**4, 10**5, 10**6, 10**7)
SCALE_LIMIT = 4.0  # a thousand times the items at most so many times the cost; log n alone is 1.75, the rest is caches
Medians = dict[str, dict[str, float]]  # contender → quantity → median


@dataclass(frozen=True)
class Task:
    """What is measured, by which of our tasks, and against whom; a peer's task has the task's name."""

    title: str
    ours: tuple[str, ...]
    peers: tuple[str, ...] = ()


TASKS = {
    "prioritized": Task(
        "prioritized sample(256) + update(256), 131,072 CartPole transitions",
        ("prioritized", "stored"),
        ("tianshou", "cpprb"),
    ),
    "adder": Task("a vector step of CartPole into a table, 1 and 64 environments", ("adder-1", "adder-64")),
    "images": Task("uniform sample(256) of 84×84×4 transitions", ("images", "frames-first", "frames-last")),
    "remote": Task(
        "across processes, CartPole transitions: one at a time, and 64", ("remote", "remote-64"), ("reverb",)
    ),
    "scale": Task("prioritized sample(256) + update(256) by size", tuple(f"scale-{n}" for n in SIZES)),
}


class Contender:
    """A worker process; see peers/replay_task.py."""

    def __init__(self, python: Path | str, script: str, task: str) -> None:
        self._name = f"{script} {task}"
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [str(python), str(PEERS / f"{script}.py"), task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} ended early with exit code {self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def trial(self) -> dict[str, float]:
        assert self._process.stdin is not None
        print("go", file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it tidies up and ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def measure(name: str, directory: Path | None, rounds: int) -> Medians:
    """The medians of a task; without a ``directory`` there are no peers."""
    task = TASKS[name]
    say(f"{task.title}: setting up")
    pythons = {peer: peer_python(directory, peer) for peer in task.peers} if directory else {}
    contenders: dict[str, Contender] = {}
    try:
        for ours in task.ours:
            contenders[OURS if ours == name else f"{OURS} {ours}"] = Contender(sys.executable, "replay_ours", ours)
        for peer, python in pythons.items():
            contenders[peer] = Contender(python, f"replay_{peer}", name)
        say(f"{task.title}: {rounds} rounds of {len(contenders)} contenders")
        trials: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}

        def run(contender: str) -> float:
            trials[contender].append(contenders[contender].trial())
            return 0.0

        interleaved({name: (lambda name=name: run(name)) for name in contenders}, rounds)
    finally:
        for contender in contenders.values():
            contender.close()
    return {
        name: {quantity: median([trial[quantity] for trial in of]) for quantity in of[0]} for name, of in trials.items()
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(title: str, results: Medians) -> None:
    columns = list(next(iter(results.values())))
    say(f"\n{title}\n{'':24}" + "".join(f"{column:>16}" for column in columns))
    for name, row in results.items():
        say(f"{name:24}" + "".join(f"{row[column]:16,.4g}" for column in columns))
    say("")


def judge(name: str, results: Medians) -> list[Verdict]:
    """The requirements that a task's medians speak about."""
    title, peers = TASKS[name].title, [peer for peer in TASKS[name].peers if peer in results]
    if name == "prioritized" and peers:
        ours, best = results[OURS]["microseconds"], min(peers, key=lambda peer: results[peer]["microseconds"])
        other = results[best]["microseconds"]
        return [Verdict(title, ours, other, "µs", other / ours, 3.0, note=f"other is {best}")]
    if name == "images":
        verdicts = []
        for contender, row in results.items():
            what = f"{title}, {contender.removeprefix(OURS).strip() or 'plain'}"
            ours, other = row["sampled GB/s"], row["memcpy GB/s"]
            verdicts.append(Verdict(what, ours, other, "GB/s", ours / other, 0.6, note="other is memcpy"))
        return verdicts
    if name == "remote" and peers:
        verdicts = []
        for what in ("inserts/s", "samples/s"):
            ours, other = results[OURS][what], results["reverb"][what]
            line = f"across processes, {what}, one item an insert"
            verdicts.append(Verdict(line, ours, other, "a second", ours / other, 10.0, note="other is reverb"))
        return verdicts
    if name == "scale":
        small, large = (results[f"{OURS} scale-{n}"]["microseconds"] for n in (SIZES[0], SIZES[-1]))
        what = "cost with 10⁷ items, against 10⁴"
        return [Verdict(what, large, small, "µs", large / small, SCALE_LIMIT, False, note="other is 10⁴")]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay tables against other libraries and memcpy.")
    parser.add_argument("--only", choices=TASKS, action="append", help="only this task; may be repeated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", type=Path, default=PEERS.parents[1] / ".peers", help="where the peers are installed")
    parser.add_argument("--without-peers", action="store_true", help="measure Starling alone")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    say(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    verdicts: list[Verdict] = []
    for name in arguments.only or TASKS:
        results = measure(name, None if arguments.without_peers else arguments.peers, arguments.rounds)
        show(TASKS[name].title, results)
        verdicts += judge(name, results)
    return finish("replay", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
