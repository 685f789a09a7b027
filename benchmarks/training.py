"""Training speed against Stable-Baselines3: environment steps a second, in alternating rounds.

Each contestant is a process that stays alive between rounds, so that imports and compilation are not measured, and
that is stopped while another one runs. The peer has a virtual environment of its own, made on the first run.

    python benchmarks/training.py [--algo ppo] [--rounds 5] [--peers DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from environments import PEERS, peer_python
from timing import Verdict, finish, interleaved, median

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Contest:
    """A training to compare: steps to warm up over, steps that runs come in multiples of, and the required ratio."""

    title: str
    warm_up: int
    multiple: int
    required: float


CONTESTS = {
    "ppo": Contest("PPO CartPole, 8 envs × 256, 64×64, 10 epochs of 256", 4 * 2048, 2048, 8.0),
    "ppo-strict": Contest("the same, without overlap", 4 * 2048, 2048, 8.0),
    "dqn": Contest("DQN CartPole, 256×256, an update of 64 every 4 steps", 2_000, 4, 4.0),
    "sac": Contest("SAC Pendulum, 256×256, an update of 256 every step", 500, 1, 2.5),
    "sac-rounds": Contest("the same, eight updates every eight steps", 504, 8, 2.5),
}


class Contestant:
    """A worker process; see peers/worker.py."""

    def __init__(self, command: list[str], contest: Contest, seconds: float) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._multiple = contest.multiple
        self._train(contest.warm_up)
        # A round takes about the same time for everyone, whatever their speed.
        self._steps = self._rounded(seconds * self._train(self._rounded(contest.warm_up / 2)))
        self._pause()

    def run(self) -> float:
        """Train for a round: environment steps a second."""
        self._process.send_signal(signal.SIGCONT)
        speed = self._train(self._steps)
        self._pause()
        return speed

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _rounded(self, steps: float) -> int:
        return max(1, round(steps / self._multiple)) * self._multiple

    def _pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)  # idle threads of a pool may spin for a while

    def _train(self, steps: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(steps, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a contestant ended with exit code {self._process.wait()}: {self._process.args!r}")
        answer = json.loads(line)
        return float(answer["steps"] / answer["seconds"])


def contest(algo: str, peer: Path, rounds: int, seconds: float) -> Verdict:
    """Measure one training; the peer runs with PyTorch's default threads and with one, and the faster counts."""
    rules = CONTESTS[algo]
    theirs = [str(peer), str(PEERS / "sb3.py"), algo]
    commands = {
        "starling": [sys.executable, str(PEERS / "ours.py"), algo],
        "default threads": [*theirs, "0"],
        "one thread": [*theirs, "1"],
    }
    contestants: dict[str, Contestant] = {}
    try:
        for name, command in commands.items():
            contestants[name] = Contestant(command, rules, seconds)
        speeds = interleaved({name: contestant.run for name, contestant in contestants.items()}, rounds)
    finally:
        for contestant in contestants.values():
            contestant.close()
    best = max(list(speeds)[1:], key=lambda name: median(speeds[name]))
    ours, other = median(speeds["starling"]), median(speeds[best])
    ratios = [mine / their for mine, their in zip(speeds["starling"], speeds[best])]
    note = f"peer with {best}; rounds from {min(ratios):.1f}× to {max(ratios):.1f}×"
    return Verdict(rules.title, ours, other, "steps/s", ours / other, rules.required, note=note)


def main() -> int:
    parser = argparse.ArgumentParser(description="Training speed against Stable-Baselines3.")
    parser.add_argument("--algo", choices=CONTESTS, help="only this algorithm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each contestant in a round, about")
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".peers", help="where the peer is installed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no paused contestant is left behind
    peer = peer_python(arguments.peers, "sb3")
    chosen = [arguments.algo] if arguments.algo else list(CONTESTS)
    verdicts = [contest(algo, peer, arguments.rounds, arguments.seconds) for algo in chosen]
    return finish("training, against Stable-Baselines3 2.9.2", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
