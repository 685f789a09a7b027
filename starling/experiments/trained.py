"""What is done with the policy of a run: here, to evaluate it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starling.algorithms.compiled import evaluation
from starling.algorithms.compiled.evaluation import Evaluation
from starling.algorithms.compiled.policy import Policy
from starling.core.errors import ConfigError
from starling.envs import EnvLike, make
from starling.experiments.config import resolve
from starling.experiments.program import Program
from starling.records.checkpoint import restoring
from starling.records.progress import Progress
from starling.records.run_dir import RunDir

__all__ = ["evaluate", "play", "trained"]


def play(program: Program, policy: Policy, episodes: int, quiet: bool = True, seed: int | None = None) -> Evaluation:
    """Evaluate a policy in environments of its own."""
    if episodes == 0:
        return Evaluation([], [])
    options = program.run.options
    count = program.run.algorithm.envs if program.vectorised else min(episodes, 16)
    chosen = options.seed + 1_000_000 if seed is None else seed
    title = f"greedy evaluation on {options.env}"
    with (
        make(program.env, count, chosen, **options.env_options) as envs,
        Progress(episodes, title, unit="episodes", quiet=quiet) as bar,
    ):
        return evaluation.evaluate(policy, envs, episodes, bar.update)


def evaluate(
    run: str | Path, episodes: int = 100, seed: int | None = None, env: EnvLike | None = None, quiet: bool = True
) -> Evaluation:
    """Evaluate the final policy of a run, or its newest checkpoint where it is not finished."""
    with trained(run, episodes, env) as (program, policy):
        return play(program, policy, episodes, quiet=quiet, seed=seed)


@contextmanager
def trained(run: str | Path, episodes: int, env: EnvLike | None = None) -> Iterator[tuple[Program, Policy]]:
    """A run and its final policy, or that of its newest checkpoint, to play ``episodes`` with."""
    if episodes < 1:
        raise ConfigError(f"episodes={episodes}; at least 1 is needed.")
    run_dir = RunDir.open(RunDir.find(run), lock=False)
    program = Program(resolve(run_dir.read_config(), {"quiet": True}), env, run_dir.path)
    try:
        if (run_dir.path / "policy").exists():
            weights = run_dir.load_policy()[0]
        else:
            with restoring(run_dir.path):
                weights = program.newest_weights()
        policy = program.policy()
        policy.load(program.acting_part(program.fitted(weights)), 0)
        yield program, policy
    finally:
        program.close()
