"""``starling train``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import typing
from typing import Any

import tyro

from starling.algorithms import ALGORITHMS
from starling.components.base import Component
from starling.components.specs import to_spec
from starling.core.errors import SpaceError
from starling.core.settings import help_of
from starling.experiments.config import Run, RunOptions, check_effects, resolve
from starling.experiments.running import Result, start
from starling.experiments.settings import overridden
from starling.formations import form

__all__ = ["parse", "report", "train"]


def train(args: list[str]) -> int:
    """Train a new run."""
    run = parse(args)
    try:
        result = start(run, command=["starling", "train", *args])
    except SpaceError as error:
        _show_misfit(error)
        raise
    report(result, run.preset)
    return 130 if result.summary["status"] == "interrupted" else 0


def parse(args: list[str], prog: str = "starling train") -> Run:
    """The run that the flags of a command ask for."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--algo", "--env", "--config", "--preset", "--formation", "--evaluators"):
        first.add_argument(flag)
    known, _ = first.parse_known_args(args)
    given = {key: value for key, value in vars(known).items() if value is not None and key != "config"}
    below = resolve(given, config=known.config)
    arguments: Any = tyro.cli(_arguments(below), args=args, prog=prog, description=train.__doc__)
    options = {name: getattr(arguments, name) for name, *_ in _flags(RunOptions, below.options)}
    options["devices"] = {kind: given for kind, given in vars(arguments.devices).items() if given}
    algorithm = getattr(arguments, below.options.algo)
    settings = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}
    run = Run(
        options=dataclasses.replace(below.options, **options),
        algorithm=overridden(below.algorithm, settings, below.options.algo),
        preset=below.preset,
    )
    check_effects(run)
    return run


def _arguments(below: Run) -> type:
    """A dataclass of every flag, with what was resolved so far as defaults."""
    name = below.options.algo
    config = ALGORITHMS[name].Config
    nested = dataclasses.make_dataclass(config.__name__, _flags(config, below.algorithm), frozen=True, kw_only=True)
    nested.__doc__ = f"Settings of {name}."
    placed = _devices(below)
    fields = _flags(RunOptions, below.options)
    fields.append(("devices", placed, dataclasses.field(default_factory=placed)))
    fields.append(("config", str | None, dataclasses.field(default=None)))  # a YAML file of settings
    fields.append(("preset", str, dataclasses.field(default=below.preset or "none")))
    fields.append((name, nested, dataclasses.field(default_factory=nested)))
    return dataclasses.make_dataclass("Train", fields, frozen=True, kw_only=True)


def _devices(below: Run) -> type:
    """A flag for the devices of each kind of role, such as --devices.learner cuda:0,cuda:1."""
    kinds = form(below.options.formation, below.counts).computing
    given = {kind: ",".join(below.devices.get(kind, ())) for kind in kinds}
    placed = dataclasses.make_dataclass("Devices", [(kind, str, given[kind]) for kind in kinds], frozen=True)
    placed.__doc__ = help_of(RunOptions)["devices"]
    return placed


def _flags(cls: type, values: Any) -> list[tuple[str, Any, Any]]:
    """Every setting but mappings, which are for a configuration file."""
    hints, found = _hints(cls), []
    for each in dataclasses.fields(cls):
        value = getattr(values, each.name)
        if not isinstance(value, dict):
            default = json.dumps(to_spec(value)) if isinstance(value, Component) else value
            found.append((each.name, hints[each.name], dataclasses.field(default=default)))
    return found


def _hints(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields, each with its help."""
    helps, found = help_of(cls), {}
    for name, hint in typing.get_type_hints(cls).items():
        if Component in typing.get_args(hint):
            hint, helps[name] = str | None, f"{helps[name]}: a .yaml or .json file, or JSON"
        found[name] = typing.Annotated[hint, tyro.conf.arg(help=helps[name])] if name in helps else hint
    return found


def _show_misfit(error: SpaceError) -> None:
    """Draw the graph as far as it was assembled, the bad edge marked."""
    if error.assembly is not None:
        from starling.components.drawing import draw_text

        print(draw_text(error.assembly), file=sys.stderr)


def report(result: Result, preset: str | None = None) -> None:
    """The closing summary: what came out, where it lies, what to try next."""
    summary, run = result.summary, result.directory
    print()
    if summary["status"] == "interrupted":
        print(f"interrupted after {summary['env_steps']:,} steps; everything up to there is kept")
        print(f"  go on:      starling resume {run}")
        return
    line = f"{summary['algorithm']} on {summary['env']}: {summary['env_steps']:,} steps in {summary['seconds']:.1f} s"
    print(f"{line} ({summary['env_steps_per_second']:,.0f} steps/s)")
    if summary["final_return"] is not None:
        print(
            f"  greedy return {summary['final_return']:.1f} ± {summary['final_return_std']:.1f} "
            f"over {summary['eval_episodes']} episodes"
        )
    several = summary["roles"] > 1
    learns = f"  {summary['backend']} learned, {summary['act_backend']} acted"
    learns += f", {summary['formation']} on {summary['executor']}" if several else ""
    print(learns + (f", settings of preset {preset}" if preset else ""))
    print(f"  run:        {run}")
    print(f"  curve:      {run / 'curve.png'}")
    print("next:")
    print(f"  starling eval {run} --episodes 20")
    if several:
        print(f"  starling doctor {run}")
    if (run / "record").exists():
        print(f"  starling replay {run}")
    print(f"  starling graph --algo {summary['algorithm']} --env {summary['env']} --svg graph.svg")
    print("  starling list")
