"""Runs: begun or gone on with, to their end, with everything written down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from gymnasium.vector import VectorEnv

from starling.algorithms.compiled.evaluation import Evaluation
from starling.core.effects import Checkpoint, Report
from starling.core.errors import RunDirError, RunError, StarlingError
from starling.core.interruption import is_in, stopping
from starling.core.trees import Tree
from starling.envs import EnvLike
from starling.envs.constructing import adapter_of, constructor_of, name_of
from starling.envs.determinism import first_difference
from starling.executors import get_executor
from starling.experiments.config import Run, resolve
from starling.experiments.program import Program, weights_in
from starling.experiments.reserving import check_memory
from starling.experiments.trained import play
from starling.formations import RoleId
from starling.records.checkpoint import restoring
from starling.records.curve import draw_curve
from starling.records.files import write_atomic
from starling.records.hashes import parameter_hash
from starling.records.manifest import changed_settings
from starling.records.metrics import Metrics, read
from starling.records.progress import Progress
from starling.records.run_dir import RunDir

__all__ = ["Result", "resume", "start", "train"]

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


def train(
    algo: str | None = None, env: EnvLike | None = None, config: str | Path | None = None, **settings: Any
) -> Result:
    """Train ``algo`` on ``env`` and return the run's summary and directory.

        result = starling.train("ppo", "CartPole-v1", steps=50_000, seed=1, ppo={"learning_rate": 1e-3})
        print(result.final_return, result.directory)

    ``env`` is a Gymnasium id, a constructor or a VectorEnv. ``config`` names a YAML file; ``settings`` are those of
    the command line, the algorithm's own as a mapping under its name. What neither says is ppo on CartPole-v1.
    """
    given = {"algo": algo, "env": None if env is None else name_of(env)}
    run = resolve({key: value for key, value in given.items() if value is not None}, settings, config=config)
    return start(run, None if isinstance(env, str) else env)


def start(run: Run, env: EnvLike | None = None, command: Sequence[str] | None = None) -> Result:
    """Train a new run in its own directory; ``env`` where its name is not enough to make the environment."""
    program = Program(run, env)
    try:
        check_memory(program)
        program.prepare()
        settings, inexact = run.to_mapping(), _why_inexact(program)
        with RunDir.create(run.options.out, run.options.algo, run.options.env) as run_dir:
            program.directory = run_dir.path
            run_dir.write_config(settings)
            run_dir.write_manifest(settings, command, inexact)
            return _Session(program, run_dir, seconds=0.0).finish()
    finally:
        program.close()


def resume(
    run: str | Path, env: EnvLike | None = None, command: Sequence[str] | None = None, quiet: bool = False
) -> Result:
    """Go on with an interrupted run from its last checkpoint; ``env`` again where it was given as a constructor.

    ``command`` is the command line that the manifest will name.
    """
    with RunDir.open(RunDir.find(run)) as run_dir:
        summary = run_dir.read_summary() if (run_dir.path / "summary.json").exists() else {}
        if summary.get("status") == "finished":
            raise RunDirError(f"{run_dir.path} is finished; start a new run, or see `starling eval {run_dir.path}`.")
        settings = run_dir.read_config()
        if quiet:
            settings["quiet"] = True
        program = Program(resolve(settings), env, run_dir.path)
        try:
            check_memory(program)
            checkpoints = program.checkpoints(RoleId(program.formation.ends, 0))
            if checkpoints.latest() is None and not checkpoints.skipped:
                program.prepare()
                run_dir.write_manifest(program.run.to_mapping(), command, _why_inexact(program))
                result = _Session(program, run_dir, seconds=0.0).finish()
                return replace(result, notes=("it was ended before it had saved anything, and began anew",))
            state, meta = checkpoints.load()
            notes = tuple(f"passed over a newer checkpoint: {reason}" for reason in checkpoints.skipped)
            with restoring(run_dir.path):
                step, seconds = int(meta["step"]), float(meta["seconds"])
                weights_in(state)
            program.check_devices()
            checkpoints.rewind(step)
            program.stop_recording()
            began_with, settings = run_dir.read_manifest().get("settings"), program.run.to_mapping()
            changes = changed_settings(began_with, settings)
            edited = tuple(f"config.yaml was edited: {change}" for change in changes)
            if inexact := "; ".join(edited) or _why_inexact(program):
                run_dir.write_manifest(settings, command, inexact, began_with)
            result = _Session(program, run_dir, seconds, resumed=step).finish()
            return replace(result, notes=(*edited, *notes))
        finally:
            program.close()


def _why_inexact(program: Program) -> str:
    """Why a resumed run will not equal an uninterrupted one; empty where it will."""
    if not program.whole_plan.acts:
        return ""
    if program.run.options.env_async:
        return "which rows are ready first depends on timing (env_async), and those under way are not seen again"
    if not program.formation.fused:
        return f"the roles of {program.formation.name} that act begin new episodes"
    envs, options = program.ready_envs, program.run.options
    if not envs.exact_resume:
        return f"{envs.name} cannot be put back to where it was"
    if isinstance(program.env, VectorEnv):
        return f"{envs.name} is one object and cannot be made again"
    if adapter_of(program.env) is not None:
        return ""
    construct = constructor_of(program.env, **options.env_options)
    try:
        difference = first_difference(construct, options.seed, PROBE_STEPS)
    except Exception as error:  # the environment's own code: training will meet it, and tell where
        return f"{envs.name} could not be probed: it raised {type(error).__name__}: {error}"
    return f"{envs.name} is not deterministic under a seed: {difference}" if difference else ""


class _Session:
    """One stretch of a run, from its start or a checkpoint to its end or an interruption; watches over its roles."""

    def __init__(self, program: Program, run_dir: RunDir, seconds: float, resumed: int | None = None) -> None:
        self.program, self.run_dir = program, run_dir
        self.options = program.run.options
        self._before, self._started = seconds, time.monotonic()
        self._resumed = resumed
        self._first = RoleId(program.formation.ends, 0)
        self._steps, self._updates = resumed or 0, 0
        self._aside = Report(-1, {})  # what other roles reported since the last report
        self._results: dict[RoleId, Tree] = {}

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def finish(self) -> Result:
        """Train to the end, evaluate, and leave everything in the run directory."""
        title = f"{self.options.algo} on {self.options.env}"
        with (
            stopping(self._hangs) as self._stop,
            Metrics(self.run_dir, resume_step=self._resumed) as self._metrics,
            Progress(self.program.length.total, title, quiet=self.options.quiet) as self._progress,
            self._noting_failure(),
        ):
            self._results = get_executor(self.program.run.executor)(self.program, self, self._resumed is not None)
        if self._stop.is_set():
            return Result(self.run_dir.path, self._write_summary("interrupted"))
        with self._noting_failure():
            return self._close()

    def _hangs(self, frame: FrameType | None, seconds: float) -> bool:
        """Whether environments that step here take much longer for a step than they did."""
        usual = self.seconds * self.program.plan.envs / self._steps if self._steps else 0.0
        return is_in(frame, "starling.envs") and seconds > 10 * usual

    def stopping(self, role: RoleId, steps: int) -> bool:
        if role == self._first:
            self._steps = max(self._steps, steps)  # a report may have come from later
        return self._stop.is_set()

    def report(self, role: RoleId, report: Report) -> None:
        if role != self._first:
            if report.steps < 0:  # a role that does not count the run's steps: what it says goes with the next line
                self._aside = _joined(self._aside, report)
            return
        report, self._aside = _joined(self._aside, report), Report(-1, {})
        self._steps, self._updates = report.steps, int(report.values.get("updates", 0))
        speed = report.steps / max(self.seconds, 1e-9)
        values = {**report.values, "steps_per_second": speed}
        began_at, interrupted = values.pop("began_at", None), values.pop("interrupted", None)
        if not interrupted:  # else the run that is resumed would have a line more than one that was not interrupted
            self._metrics.write(report.steps, values, report.histograms, began_at=began_at)
        prefix = f"{self.program.algorithm.name}.loss."
        losses = {key.removeprefix(prefix): value for key, value in report.values.items() if key.startswith(prefix)}
        self._progress.update(report.steps, episode_return=report.values.get("episode_return"), losses=losses)

    def checkpoint(self, role: RoleId, checkpoint: Checkpoint) -> None:
        self.program.save(role, checkpoint, self.seconds)

    def status(self, status: dict[str, Any]) -> None:
        content = json.dumps({**status, "time": time.time()}).encode()
        with suppress(RunDirError):  # nobody's work depends on it
            write_atomic(self.run_dir.path / "status.json", content, RunDirError)

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
                self._write_summary("failed", error=str(error))
            if isinstance(error, RunDirError):  # the directory was good when the run began
                raise RunError(str(error)) from error
            raise

    def _close(self) -> Result:
        trained = self.seconds
        weights = self.program.weights(self._results)
        self.run_dir.save_policy(weights, {"algo": self.options.algo, "env": self.options.env})
        policy = self.program.policy()
        policy.load(self.program.acting_part(weights), 0)
        final = play(self.program, policy, self.options.eval_episodes, quiet=self.options.quiet)
        title = f"{self.options.algo} on {self.options.env}, seed {self.options.seed}"
        draw_curve(read(self.run_dir), self.run_dir.path / "curve.png", title)
        return Result(self.run_dir.path, self._write_summary("finished", trained, final))

    def _write_summary(
        self, status: str, seconds: float | None = None, final: Evaluation | None = None, error: str | None = None
    ) -> dict[str, Any]:
        seconds = self.seconds if seconds is None else seconds
        backends = self.program.backends
        summary = {
            "algorithm": self.options.algo,
            "env": self.options.env,
            "seed": self.options.seed,
            "backend": backends.learn,
            "act_backend": backends.act,
            "formation": self.program.formation.name,
            "roles": len(list(self.program.formation)),
            "executor": self.program.run.executor,
            "status": status,
            **({"error": error} if error else {}),
            "env_steps": self._steps,
            "updates": self._updates,
            "seconds": round(seconds, 3),
            "env_steps_per_second": round(self._steps / max(seconds, 1e-9), 1),
            "final_return": final.mean if final and final.returns else None,
            "final_return_std": final.std if final and final.returns else None,
            "eval_episodes": len(final.returns) if final else 0,
            "parameter_hash": parameter_hash(self.program.weights(self._results)) if self._results else None,
        }
        self.run_dir.write_summary(summary)
        return summary


def _joined(earlier: Report, report: Report) -> Report:
    """A report with what an earlier one said beside it."""
    return Report(report.steps, {**earlier.values, **report.values}, {**earlier.histograms, **report.histograms})
