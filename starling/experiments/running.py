"""Runs: train, resume and evaluate, with everything written down."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from starling.core.errors import CheckpointError, ConfigError, RunDirError, RunError, StarlingError
from starling.envs import EnvLike, make
from starling.envs.determinism import first_difference
from starling.envs.making import constructor_of
from starling.envs.vector_envs import VectorEnvs
from starling.experiments.config import Run, resolve
from starling.experiments.evaluation import Evaluation, evaluate
from starling.experiments.summaries import Summaries
from starling.experiments.training import Training
from starling.records.curve import draw_curve
from starling.records.hashes import parameter_hash
from starling.records.metrics import Metrics, read
from starling.records.progress import Progress
from starling.records.run_dir import RunDir

__all__ = ["Result", "evaluate_run", "resume", "start"]

PROBE_STEPS = 50  # of two fresh environments compared, to learn whether a seed determines them


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    directory: Path
    summary: dict[str, Any]
    notes: tuple[str, ...] = ()  # what the reader should know of how it came about

    @property
    def final_return(self) -> float | None:
        return self.summary["final_return"]


def start(run: Run, env: EnvLike | None = None, command: Sequence[str] | None = None) -> Result:
    """Train a new run in its own directory; ``env`` where its name is not enough to make the environment."""
    training = Training(run, env)
    try:
        with RunDir.create(run.options.out, run.options.algo, run.options.env) as run_dir:
            run_dir.write_config(run.to_mapping())
            _write_manifest(run_dir, run, command, _why_inexact(training))
            return _Session(training, run_dir, seconds=0.0).finish()
    finally:
        training.close()


def resume(
    run: str | Path, env: EnvLike | None = None, command: Sequence[str] | None = None, quiet: bool = False
) -> Result:
    """Go on with an interrupted run from its last checkpoint."""
    with RunDir.open(RunDir.find(run)) as run_dir:
        summary = run_dir.read_summary() if (run_dir.path / "summary.json").exists() else {}
        if summary.get("status") == "finished":
            raise RunDirError(f"{run_dir.path} is finished; start a new run, or see `starling eval {run_dir.path}`.")
        settings = run_dir.read_config()
        if quiet:
            settings["quiet"] = True
        training = Training(resolve(settings), env)
        try:
            checkpoints = run_dir.checkpoints(training.run.options.keep_checkpoints)
            state, meta = checkpoints.load()
            notes = tuple(f"passed over a newer checkpoint: {reason}" for reason in checkpoints.skipped)
            with _expecting_a_state(run_dir):
                training.restore(state)
                step, seconds = int(meta["step"]), float(meta["seconds"])
            checkpoints.rewind(step)
            if not training.envs.exact_resume:
                _write_manifest(run_dir, training.run, command, _why_inexact(training))
            result = _Session(training, run_dir, seconds, resumed=step).finish()
            return replace(result, notes=notes)
        finally:
            training.close()


@contextmanager
def _expecting_a_state(run_dir: RunDir) -> Iterator[None]:
    """A checkpoint may be whole and yet hold something else: say so."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {error!s:.200}"
        raise CheckpointError(
            f"the checkpoint in {run_dir.path} is not the state of this run ({what}); it was changed, or written by "
            "another version."
        ) from error


def _why_inexact(training: Training) -> str:
    """Why a resumed run will not equal an uninterrupted one; empty where it will."""
    name = training.envs.name
    if not training.envs.exact_resume:
        return f"{name} cannot be put back to where it was"
    if isinstance(training.env, VectorEnv):
        return f"{name} is one object and cannot be made again"
    construct = constructor_of(training.env, **training.run.options.env_options)
    try:
        difference = first_difference(construct, training.run.options.seed, PROBE_STEPS)
    except Exception as error:  # the environment's own code: training will meet it, and tell where
        return f"{name} could not be probed: it raised {type(error).__name__}: {error}"
    return f"{name} is not deterministic under a seed: {difference}" if difference else ""


def _write_manifest(run_dir: RunDir, run: Run, command: Sequence[str] | None, inexact: str) -> None:
    options = run.options
    run_dir.write_manifest(
        algo=options.algo, env=options.env, seed=options.seed, command=command, resume_exact=not inexact, reason=inexact
    )


class _Session:
    """One stretch of a run, from its start or a checkpoint to its end or an interruption."""

    def __init__(self, training: Training, run_dir: RunDir, seconds: float, resumed: int | None = None) -> None:
        self.training, self.run_dir = training, run_dir
        self.options = training.run.options
        self.checkpoints = run_dir.checkpoints(self.options.keep_checkpoints)
        self._before, self._started = seconds, time.monotonic()
        self._resumed = self._reported = self._saved = resumed
        self.summaries = Summaries(self.options.algo, self.options.summaries)

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def finish(self) -> Result:
        """Train to the end, evaluate, and leave everything in the run directory."""
        title = f"{self.options.algo} on {self.options.env}"
        with (
            stopping() as stop,
            Metrics(self.run_dir, resume_step=self._resumed) as metrics,
            Progress(self.options.steps, title, quiet=self.options.quiet) as progress,
            self._noting_failure(),
        ):
            self._train(metrics, progress, stop)
        if stop.is_set():
            return Result(self.run_dir.path, self._write_summary("interrupted"))
        with self._noting_failure():
            return self._close()

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Leave a summary of a run that ends early; what ended it matters more than that it can be written."""
        try:
            yield
        except KeyboardInterrupt:
            self._write_summary("interrupted")
            raise
        except StarlingError as error:
            with suppress(StarlingError):
                self._write_summary("failed")
            if isinstance(error, RunDirError):  # the directory was good when the run began
                raise RunError(str(error)) from error
            raise

    def _train(self, metrics: Metrics, progress: Progress, stop: threading.Event) -> None:
        training, options = self.training, self.options
        report_at = training.steps + options.log_every
        save_at = (training.steps // options.checkpoint_every + 1) * options.checkpoint_every
        if self._resumed is None:
            self._save()
        while training.steps < options.steps and not stop.is_set():
            training.round()
            if training.steps >= report_at:
                report_at = training.steps + options.log_every
                self._report(metrics, progress)
            if training.steps >= save_at:
                save_at += options.checkpoint_every
                self._save()
        if self._reported != training.steps:
            self._report(metrics, progress)
        if self._saved != training.steps:
            self._save()

    def _report(self, metrics: Metrics, progress: Progress) -> None:
        self._reported = self.training.steps
        values = self.training.metrics()
        means, histograms = self.summaries.take(values, self.training.learner.recorded)
        speed = self.training.steps / max(self.seconds, 1e-9)
        metrics.write(self.training.steps, {**values, **means, "steps_per_second": speed}, histograms)
        prefix = f"{self.options.algo}.loss."
        losses = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        progress.update(self.training.steps, episode_return=values.get("episode_return"), losses=losses)

    def _save(self) -> None:
        self._saved = self.training.steps
        self.checkpoints.save(self.training.steps, self.training.state(), {"seconds": self.seconds})

    def _close(self) -> Result:
        trained = self.seconds
        weights = self.training.learner.weights()
        self.run_dir.save_policy(weights, {"algo": self.options.algo, "env": self.options.env})
        final = play(self.training, self.options.eval_episodes, quiet=self.options.quiet)
        title = f"{self.options.algo} on {self.options.env}, seed {self.options.seed}"
        draw_curve(read(self.run_dir), self.run_dir.path / "curve.png", title)
        return Result(self.run_dir.path, self._write_summary("finished", trained, final))

    def _write_summary(
        self, status: str, seconds: float | None = None, final: Evaluation | None = None
    ) -> dict[str, Any]:
        seconds = self.seconds if seconds is None else seconds
        summary = {
            "algorithm": self.options.algo,
            "env": self.options.env,
            "seed": self.options.seed,
            "backend": self.training.backends.learn,
            "act_backend": self.training.backends.act,
            "formation": "single",
            "executor": "inline",
            "status": status,
            "env_steps": self.training.steps,
            "updates": self.training.learner.version,
            "seconds": round(seconds, 3),
            "env_steps_per_second": round(self.training.steps / max(seconds, 1e-9), 1),
            "final_return": final.mean if final and final.returns else None,
            "final_return_std": final.std if final and final.returns else None,
            "eval_episodes": len(final.returns) if final else 0,
            "parameter_hash": parameter_hash(self.training.learner.weights()),
        }
        self.run_dir.write_summary(summary)
        return summary


def play(training: Training, episodes: int, quiet: bool = True, seed: int | None = None) -> Evaluation:
    """Evaluate a training's policy in environments of its own."""
    if episodes == 0:
        return Evaluation([], [])
    options = training.run.options
    count = training.envs.count if isinstance(training.envs, VectorEnvs) else min(episodes, 16)
    chosen = options.seed + 1_000_000 if seed is None else seed
    title = f"greedy evaluation on {options.env}"
    with (
        make(training.env, count, chosen, **options.env_options) as envs,
        Progress(episodes, title, unit="episodes", quiet=quiet) as bar,
    ):
        return evaluate(training.policy, envs, episodes, bar.update)


def evaluate_run(
    run: str | Path, episodes: int = 100, seed: int | None = None, env: EnvLike | None = None, quiet: bool = True
) -> Evaluation:
    """Evaluate the final policy of a run, or its newest checkpoint where it is not finished."""
    if episodes < 1:
        raise ConfigError(f"episodes={episodes}; at least 1 is needed.")
    run_dir = RunDir.open(RunDir.find(run), lock=False)
    training = Training(resolve(run_dir.read_config(), {"quiet": True}), env)
    try:
        if (run_dir.path / "policy").exists():
            weights, _ = run_dir.load_policy()
            training.policy.load(training.learner.fitted(weights), 0)
        else:
            state, _ = run_dir.checkpoints().load()
            with _expecting_a_state(run_dir):
                training.learner.restore(state["learner"])
            training.policy.load(training.learner.weights(), training.learner.version)
        return play(training, episodes, quiet=quiet, seed=seed)
    finally:
        training.close()


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C (or SIGTERM) sets; a second one interrupts at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
