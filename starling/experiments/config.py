"""What a run is: algorithm, environment, formation, executor, seed, and every setting of each.

Settings come, each over the one before, from defaults, a preset, a YAML file, and the call or command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from starling.algorithms import ALGORITHMS
from starling.backends import parse_devices
from starling.core.errors import ConfigError, UnknownNameError
from starling.core.settings import setting
from starling.core.yaml_files import read_settings
from starling.executors import EXECUTORS
from starling.experiments.presets import PRESETS, find_preset
from starling.experiments.settings import overridden, plain
from starling.formations import FORMATIONS, Counts, Formation, Placement, form

__all__ = ["Run", "RunOptions", "check_effects", "resolve"]


_COUNTS = [each.name for each in dataclasses.fields(Counts)]


@dataclass(frozen=True, kw_only=True)
class RunOptions(Counts):
    """Settings of a run that do not belong to its algorithm; the counts are those of its formation."""

    algo: str = setting("ppo", "the algorithm; see `starling list`")
    env: str = setting("CartPole-v1", "a Gymnasium id, or envpool:ID")
    steps: int = setting(100_000, "environment steps, over all environments", 1)
    updates: int | None = setting(None, "updates, in place of steps, of a run in which nobody acts", 1)
    seed: int = setting(0, "of everything that is drawn", 0)
    backend: Literal["auto", "jax", "torch"] = setting("auto", "what learns")
    act_backend: Literal["auto", "numpy", "jax", "torch"] = setting("auto", "what acts")
    formation: str = setting("single", "which roles there are; see `starling list --formations`")
    executor: str = setting("auto", "what makes the roles run: inline, simulated, processes; see `starling list`")
    record: bool = setting(False, "write down the order of events of a run on processes, for `starling replay`")
    pin_cpus: bool = setting(False, "keep each process to a processor of its own, in turn")
    heartbeat: float = setting(300.0, "seconds without a sign of life until a process is restarted; 0: never", 0)
    out: str | None = setting(None, "run directory; None: runs/DATE-ALGO-ENV")
    eval_episodes: int = setting(100, "greedy episodes at the end", 0)
    log_every: int = setting(1_000, "environment steps between lines of metrics", 1)
    checkpoint_every: int = setting(10_000, "environment steps between checkpoints", 1)
    keep_checkpoints: int = setting(2, "checkpoints that are kept", 1)
    quiet: bool = setting(False, "no progress display")
    summaries: tuple[str, ...] = setting((), 'values to record, by path: "ppo.loss.*", "q.q_values"')
    simulation: dict[str, Any] = setting({}, "speeds, delays and faults of a simulated run")
    env_timeout: float = setting(0.0, "seconds that a step of a role's environment may take; 0: any", 0)
    env_workers: int = setting(0, "processes that share each role's environments, from 2 on; its own is one", 0, 1024)
    env_async: bool = setting(False, "act in the rows that are ready, half at a time, and wait for no slow ones")
    env_options: dict[str, Any] = setting({}, "for the environment's constructor")
    devices: dict[str, Any] = setting({}, "what roles compute on, by kind: cuda:0,cuda:1 share a learner's batches")


_OPTIONS = [each.name for each in dataclasses.fields(RunOptions)]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run with every setting resolved."""

    options: RunOptions
    algorithm: Any  # the algorithm's Config
    preset: str | None = None

    @property
    def counts(self) -> Counts:
        """The counts and limits of the formation, as they were asked for."""
        return Counts(**{name: getattr(self.options, name) for name in _COUNTS})

    @property
    def devices(self) -> dict[str, tuple[str, ...]]:
        """What each kind of role computes on, where it was asked for."""
        return {kind: parse_devices(given, f"devices.{kind}") for kind, given in self.options.devices.items()}

    @property
    def executor(self) -> str:
        """``auto`` resolved: formations of several roles get processes."""
        if self.options.executor != "auto":
            return self.options.executor
        return "inline" if form(self.options.formation, self.counts).fused else "processes"

    def to_mapping(self) -> dict[str, Any]:
        """All settings, as they are written to ``config.yaml`` and read by ``resolve``."""
        return {**plain(self.options), self.options.algo: plain(self.algorithm), "preset": self.preset or "none"}


def resolve(*layers: Mapping[str, Any], config: str | Path | None = None) -> Run:
    """The run that ``layers`` of settings describe, later ones over earlier ones; ``config`` is a file below them."""
    given = [_normalised(layer) for layer in ([read_settings(config, ConfigError)] if config else []) + list(layers)]
    merged: dict[str, Any] = {}
    for layer in given:
        merged = _merged(merged, layer)
    for key in ("algo", "env"):
        if key in merged and not isinstance(merged[key], str):
            raise ConfigError(f"{key}={merged[key]!r}; a name was expected.")
    preset = _preset_for(merged)
    if preset is not None:
        below = PRESETS[preset]
        if merged.get("algo", below["algo"]) != below["algo"]:
            raise ConfigError(
                f"preset {preset!r} is for {below['algo']}; algo={merged['algo']} was asked for. Drop one of them."
            )
        merged = _merged(_fitted(below, merged.get("formation", below.get("formation"))), merged)
    merged.pop("preset", None)
    name = merged.get("algo", RunOptions.algo)
    algorithm = ALGORITHMS[name]
    settings = merged.pop(name, {})
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{name}={settings!r}; the settings of the algorithm are a mapping.")
    for key in merged:
        if key not in _OPTIONS:
            raise UnknownNameError("setting", key, [*_OPTIONS, name, "preset"], "the run's configuration")
    run = Run(
        options=overridden(RunOptions(), merged, "run"),
        algorithm=overridden(algorithm.Config(), settings, name),
        preset=preset,
    )
    check_effects(run)
    return run


def check_effects(run: Run) -> None:
    """Refuse settings of the executor, and devices, that would have no effect."""
    FORMATIONS.require(run.options.formation)
    if run.options.executor != "auto":
        EXECUTORS.require(run.options.executor)
    if run.devices:
        Placement(form(run.options.formation, run.counts), run.devices)
    for name in ("record", "pin_cpus", "heartbeat", "simulation"):
        changed = getattr(run.options, name) != getattr(RunOptions(), name)
        if changed and name not in EXECUTORS[run.executor].takes:
            fits = ", ".join(other for other, kind in EXECUTORS.items() if name in kind.takes)
            raise ConfigError(f"{name} has no effect on the executor {run.executor}; it is for {fits}.")
    if run.options.env_async and run.options.record:
        raise ConfigError("a record cannot be replayed with env_async, where rows come as they are ready; drop one.")
    if run.options.env_async and not _acts_itself(form(run.options.formation, run.counts)):
        fits = ", ".join(name for name in FORMATIONS if _acts_itself(form(name)))
        raise ConfigError(
            f"env_async does not fit {run.options.formation}, which acts in all rows of an actor at once; try {fits}."
        )
    if run.options.env_timeout and form(run.options.formation, run.counts).fused:
        raise ConfigError(
            f"env_timeout has no effect in {run.options.formation}, whose episodes must be replayable; try sync."
        )


def _acts_itself(formation: Formation) -> bool:
    """Whether whoever has environments has a network too."""
    return all(roles.acts for roles in formation.roles if roles.sort == "actor")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others: where both have a mapping, its settings over those of the other."""
    both = [name for name in above if isinstance(above[name], Mapping) and isinstance(below.get(name), Mapping)]
    return {**below, **above, **{name: {**below[name], **above[name]} for name in both}}


def _fitted(preset: Mapping[str, Any], formation: str | None) -> dict[str, Any]:
    """A preset's settings for a formation: in another than its own, without counts."""
    if formation == preset.get("formation"):
        return dict(preset)
    return {key: value for key, value in preset.items() if key not in _COUNTS and key != "formation"}


def _normalised(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The layer with ``learning-rate`` as ``learning_rate``: of the run and of the algorithm, not inside options."""

    def snake(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {str(key).replace("-", "_"): value for key, value in settings.items()}

    return {
        key: snake(value) if isinstance(value, Mapping) and key not in _OPTIONS else value
        for key, value in snake(layer).items()
    }


def _preset_for(merged: Mapping[str, Any]) -> str | None:
    asked = merged.get("preset")
    if asked is not None:
        return None if asked == "none" else str(asked)
    algo, env = merged.get("algo", RunOptions.algo), merged.get("env", RunOptions.env)
    return find_preset(algo, env, merged.get("formation"))
