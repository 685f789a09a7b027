"""Does it learn? Every algorithm on its yardstick, over several seeds, judged by greedy episodes.

    .venv/bin/python benchmarks/learning.py algorithms         # 5 seeds on JAX, 2 on PyTorch
    .venv/bin/python benchmarks/learning.py formations memory --seeds 3
    .venv/bin/python benchmarks/learning.py mujoco --only Hopper --seeds 1

Each run has processes of its own, through the command line. Exits with 1 where a requirement is not met.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trained import starling, train

from starling.records.statistics import interquartile_mean

EPISODES = 50  # of a trained policy, to learn from


@dataclass(frozen=True)
class Yardstick:
    """What to train, and the greedy return it must reach."""

    title: str
    settings: dict[str, Any] = field(repr=False)
    least: float
    misses: int = 0  # seeds of five that may fall short
    at_most: bool = False  # ``least`` is what it must stay below, since it lacks what it takes
    in_the_mean: bool = False  # over the seeds; else each of them
    data: str = ""  # the setting that names a data set of episodes of a trained policy

    def falls_short(self, returns: list[float]) -> bool:
        if self.in_the_mean:
            return statistics.fmean(returns) < self.least
        short = sum(ret >= self.least if self.at_most else ret < self.least for ret in returns)
        return short > (self.misses if len(returns) >= 5 else 0)


def algorithm(algo: str, env: str, steps: int, least: float, **more: Any) -> Yardstick:
    settings = {"algo": algo, "env": env, "steps": steps, "checkpoint_every": steps}
    return Yardstick(f"{algo} {env} {steps // 1000}k", settings, least, **more)


def formation(title: str, **settings: Any) -> Yardstick:
    return Yardstick(title, settings, 475)


def preset(name: str, least: float, **more: Any) -> Yardstick:
    return Yardstick(name, {"preset": name}, least, **more)


def from_episodes(title: str, algo: str, data: str, **settings: Any) -> Yardstick:
    return Yardstick(title, {"algo": algo, "env": "CartPole-v1", **settings}, 475, data=data)


def hidden(title: str, algo: str, steps: int, least: float, at_most: bool = False, **settings: Any) -> Yardstick:
    """CartPole without its velocities."""
    run = {"algo": algo, "preset": "none", "env": "hidden:HiddenCartPole-v1", "steps": steps, algo: settings}
    return Yardstick(title, run, least, at_most=at_most)


SEEN = {"normalise_observations": True, "gamma": 0.98, "anneal": True}  # what all of them get on hidden velocities
ROLLOUTS = {**SEEN, "gae_lambda": 0.9, "learning_rate": 1e-3, "envs": 16, "rollout": 128, "minibatch": 512, "epochs": 8}

GROUPS: dict[str, tuple[Yardstick, ...]] = {
    "algorithms": (
        algorithm("ppo", "CartPole-v1", 100_000, 475),
        algorithm("a2c", "CartPole-v1", 500_000, 475),
        algorithm("dqn", "CartPole-v1", 100_000, 475, misses=1),
        algorithm("sac", "Pendulum-v1", 20_000, -200),
        algorithm("ppo", "Acrobot-v1", 500_000, -100),
    ),
    "families": (
        algorithm("reinforce", "CartPole-v1", 500_000, 475),
        algorithm("es", "CartPole-v1", 500_000, 475),
        from_episodes("bc from 50 episodes", "bc", "data", updates=3_000),
        from_episodes("dqn with demonstrations", "dqn", "demonstrations", steps=100_000),
    ),
    "memory": (
        hidden("ppo with an LSTM", "ppo", 300_000, 400, memory="lstm", hidden=[64], **ROLLOUTS),
        hidden("ppo with a GRU", "ppo", 300_000, 400, memory="gru", hidden=[64], **ROLLOUTS),
        hidden("r2d2", "r2d2", 200_000, 400, **SEEN),
        hidden("ppo without memory", "ppo", 300_000, 150, at_most=True, **ROLLOUTS),
        hidden("dqn, without memory", "dqn", 200_000, 150, at_most=True, envs=8, **SEEN),
    ),
    "formations": (
        *(formation(name, preset=name) for name in ("a3c", "appo", "impala", "seed-impala", "apex-dqn", "gorila-dqn")),
        formation("ppo allreduce", algo="ppo", formation="allreduce", learners=2, actors=2),
        formation("ppo sharded_ps", algo="ppo", formation="sharded_ps", servers=2, actors=2),
    ),
    "presets": (
        preset("dqn-acrobot", -100),
        preset("ppo-lunarlander", 200),  # solved, as Gymnasium puts it
        preset("ppo-pendulum", -250),
        preset("sac-mountaincarcontinuous", 90),  # solved
    ),
    "mujoco": (  # CleanRL's on v4: 2,383 ± 272 and 1,443 ± 46
        preset("ppo-hopper", 2_000, in_the_mean=True),
        preset("ppo-halfcheetah", 1_400, in_the_mean=True),
    ),
}  # fmt: skip


def judge(yardstick: Yardstick, backend: str, seeds: int, data: Callable[[], Path]) -> bool:
    """Run the seeds and print a row."""
    settings = {**yardstick.settings, "backend": backend}
    if yardstick.data:
        settings[settings["algo"]] = {yardstick.data: str(data())}
    runs = [train({**settings, "seed": seed}).summary for seed in range(seeds)]
    returns = [run["final_return"] for run in runs]
    short = yardstick.falls_short(returns)
    seconds = sum(run["seconds"] for run in runs) / seeds
    cell = " ".join(f"{ret:7.1f}" for ret in returns)
    bound = f"{'<' if yardstick.at_most else '≥'} {yardstick.least:6.1f}{' in the mean' * yardstick.in_the_mean}"
    verdict = f"{bound}  {seconds:6.1f} s  {'FELL SHORT' if short else 'ok'}"
    print(f"{yardstick.title:28} {backend:5}  {cell:40}  IQM {interquartile_mean(returns):7.1f}  {verdict}", flush=True)
    return not short


def demonstrations(directory: Path) -> Path:
    """Episodes of a policy that PPO trained on CartPole, recorded on the first call."""
    found = directory / "episodes"
    if not found.exists():
        train({"algo": "ppo", "env": "CartPole-v1"}, directory / "teacher")
        starling("collect", str(directory / "teacher"), "--episodes", str(EPISODES), "--out", str(found))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="+", choices=GROUPS, help="what to train")
    parser.add_argument("--only", default="", help="yardsticks whose title has this in it")
    parser.add_argument("--backend", choices=["jax", "torch"], help="one backend")
    parser.add_argument("--seeds", type=int, default=5, help="on JAX; PyTorch gets at most two")
    arguments = parser.parse_args()
    passed = True
    with tempfile.TemporaryDirectory() as directory:
        for group in arguments.groups:
            backends = [arguments.backend or "jax"]
            if group == "algorithms" and not arguments.backend:
                backends.append("torch")
            for yardstick in GROUPS[group]:
                for backend in backends if arguments.only in yardstick.title else []:
                    seeds = arguments.seeds if backend == "jax" else min(2, arguments.seeds)
                    passed &= judge(yardstick, backend, seeds, lambda: demonstrations(Path(directory)))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
