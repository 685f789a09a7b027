"""What a run is: algorithm, environment, formation, executor, seed, and every setting of each.

Settings come, each over the one before, from defaults, a preset, a YAML file, and the call or command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from starling.algorithms import ALGORITHMS, get_algorithm
from starling.core.errors import ConfigError, UnknownNameError
from starling.experiments.compatibility import idle_settings
from starling.experiments.presets import Preset, find_preset, get_preset
from starling.experiments.settings import load_yaml, overridden, plain
from starling.formations import Counts, get_formation

__all__ = ["Run", "RunOptions", "check_effects", "resolve"]


_COUNTS = [each.name for each in dataclasses.fields(Counts)]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Settings of a run that do not belong to its algorithm."""

    algo: str = "ppo"
    env: str = "CartPole-v1"  # a Gymnasium id, or envpool:ID
    steps: int = 100_000  # environment steps, over all environments
    seed: int = 0
    backend: Literal["auto", "jax", "torch"] = "auto"  # learns
    act_backend: Literal["auto", "numpy", "jax", "torch"] = "auto"  # acts
    formation: str = "single"  # which roles there are; see `starling list --formations`
    executor: Literal["auto", "inline", "simulated", "processes"] = "auto"  # what makes them run
    record: bool = False  # write down the order of events of a run on processes, for `starling replay`
    pin_cpus: bool = False  # keep each process to a processor of its own, in turn
    heartbeat: float = 300.0  # seconds without a sign of life after which a process is started again; 0: never
    actors: int | None = None  # roles that act; workers where they also compute gradients
    learners: int | None = None
    buffers: int | None = None  # shards of the replay table
    servers: int | None = None  # parameter servers
    evaluators: int | None = None  # roles that play greedily beside the run
    queue: int | None = None  # items that wait between two roles
    max_lag: int | None = None  # updates that experience may be old; 0: nobody runs ahead; older is dropped
    samples_per_insert: float | None = None  # times that a transition is drawn, on average; 0: no limit
    inference_batch: int | None = None  # requests answered together; 0: as many as there are actors
    inference_wait: float | None = None  # seconds that a request waits for others
    out: str | None = None  # run directory; None: runs/DATE-ALGO-ENV
    eval_episodes: int = 100  # greedy episodes at the end
    log_every: int = 1_000  # environment steps between lines of metrics
    checkpoint_every: int = 10_000  # environment steps between checkpoints
    keep_checkpoints: int = 2
    quiet: bool = False  # no progress display
    summaries: tuple[str, ...] = ()  # values to record, by path: "ppo.loss.*", "q.q_values"
    simulation: dict[str, Any] = field(default_factory=dict)  # speeds, delays and faults of a simulated run
    env_timeout: float = 0.0  # seconds that a step of a role's environment may take before it is made anew; 0: any
    env_options: dict[str, Any] = field(default_factory=dict)  # for the environment's constructor
    devices: tuple[str, ...] = ()  # what learning computes on, such as cuda:0; several share each batch

    def __post_init__(self) -> None:
        for name, least in {"steps": 1, "eval_episodes": 0, "log_every": 1, "checkpoint_every": 1}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}; it must be at least {least}.")
        for name in ("env_timeout", "heartbeat"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)}; it must be 0 (no limit) or above.")
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed}; it must be 0 or above.")
        if self.keep_checkpoints < 1:
            raise ConfigError(f"keep_checkpoints={self.keep_checkpoints}; at least 1 is needed to resume.")


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
    def executor(self) -> str:
        """``auto`` resolved: formations of several roles get processes."""
        if self.options.executor != "auto":
            return self.options.executor
        return "inline" if self.options.formation == "single" else "processes"

    def to_mapping(self) -> dict[str, Any]:
        """All settings, as they are written to ``config.yaml`` and read by ``resolve``."""
        return {**plain(self.options), self.options.algo: plain(self.algorithm), "preset": self.preset or "none"}


def resolve(*layers: Mapping[str, Any], config: str | Path | None = None) -> Run:
    """The run that ``layers`` of settings describe, later ones over earlier ones; ``config`` is a file below them."""
    given = [_normalised(layer) for layer in ([load_yaml(config)] if config else []) + list(layers)]
    merged: dict[str, Any] = {}
    for layer in given:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = {**merged[key], **value} if both else value
    for key in ("algo", "env"):
        if key in merged and not isinstance(merged[key], str):
            raise ConfigError(f"{key}={merged[key]!r}; a name was expected.")
    preset = _preset_for(merged)
    if preset is not None:
        below = preset.settings
        if merged.get("algo", below["algo"]) != below["algo"]:
            raise ConfigError(
                f"preset {preset.name!r} is for {below['algo']}; algo={merged['algo']} was asked for. Drop one of them."
            )
        below = _fitted(below, merged.get("formation", below.get("formation")))
        merged = {
            **below,
            **{k: {**below.get(k, {}), **v} if isinstance(v, Mapping) else v for k, v in merged.items()},
        }
    merged.pop("preset", None)
    name = merged.get("algo", RunOptions.algo)
    algorithm = get_algorithm(name)
    settings = merged.pop(name, {})
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{name}={settings!r}; the settings of the algorithm are a mapping.")
    known = [f.name for f in dataclasses.fields(RunOptions)]
    for key in merged:
        if key not in known:
            raise UnknownNameError("setting", key, [*known, name, "preset"], "the run's configuration")
    run = Run(
        options=overridden(RunOptions(), merged, "run"),
        algorithm=overridden(algorithm.Config(), settings, name),
        preset=preset.name if preset else None,
    )
    check_effects(run)
    return run


def check_effects(run: Run) -> None:
    """Refuse settings of the executor that would have no effect."""
    get_formation(run.options.formation)
    if run.options.record and run.executor != "processes":
        raise ConfigError(f"record has no effect on the executor {run.executor}: the same seed gives the same run.")
    algo, formation, cls = run.options.algo, run.options.formation, get_algorithm(run.options.algo)
    for name, why in idle_settings(cls, formation).items():
        if getattr(run.algorithm, name) != getattr(cls.Config(), name):
            raise ConfigError(f"{algo}.{name} has no effect in {formation}, {why}; leave it out.")
    if formation == "apex" and run.options.samples_per_insert == 0 and getattr(run.algorithm, "anneal", False):
        raise ConfigError(
            f"{algo}.anneal has no effect with samples_per_insert=0: how many updates there will be is not known. "
            "Leave it out, or limit the draws of a transition."
        )
    if run.options.env_timeout and run.options.formation == "single":
        raise ConfigError("env_timeout has no effect in single, whose episodes must be replayable; try sync.")
    for name in ("pin_cpus", "heartbeat"):
        if getattr(run.options, name) != getattr(RunOptions, name) and run.executor != "processes":
            raise ConfigError(f"{name} has no effect on the executor {run.executor}; it is for processes.")
    if run.options.simulation and run.executor != "simulated":
        raise ConfigError(f"simulation has no effect on the executor {run.executor}; it is for simulated.")


def _fitted(preset: Mapping[str, Any], formation: str | None) -> dict[str, Any]:
    """A preset's settings for a formation: in another than its own, without counts and what has no effect there."""
    if formation == preset.get("formation"):
        return dict(preset)
    algo = preset["algo"]
    idle = idle_settings(get_algorithm(algo), formation or "single")
    kept = {key: value for key, value in preset.items() if key not in _COUNTS and key != "formation"}
    return {**kept, algo: {key: value for key, value in preset.get(algo, {}).items() if key not in idle}}


def _normalised(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The layer with ``learning-rate`` as ``learning_rate``: of the run and of the algorithm, not inside options."""

    def snake(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {str(key).replace("-", "_"): value for key, value in settings.items()}

    return {
        key: snake(value) if key in ALGORITHMS and isinstance(value, Mapping) else value
        for key, value in snake(layer).items()
    }


def _preset_for(merged: Mapping[str, Any]) -> Preset | None:
    asked = merged.get("preset")
    if asked is not None:
        return None if asked == "none" else get_preset(str(asked))
    algo, env = merged.get("algo", RunOptions.algo), merged.get("env", RunOptions.env)
    return find_preset(algo, env, merged.get("formation"))
