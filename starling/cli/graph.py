"""``starling graph``."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import tyro

from starling.components.drawing import draw_svg, draw_text
from starling.components.graph.assembly import Assembly
from starling.core.errors import RequestError, SpaceError
from starling.envs import make
from starling.experiments.config import resolve
from starling.experiments.program import assemble_for

__all__ = ["graph"]


@dataclass(frozen=True, kw_only=True)
class GraphArguments:
    """Draw the component graph of an algorithm, assembled for an environment."""

    algo: str = "ppo"
    env: str = "CartPole-v1"
    svg: str | None = None  # a file to draw into; without it the graph is printed
    config: str | None = None  # a YAML file of settings


def graph(args: list[str]) -> int:
    """Draw a component graph."""
    arguments = tyro.cli(GraphArguments, args=args, prog="starling graph")
    run = resolve({"algo": arguments.algo, "env": arguments.env}, config=arguments.config)
    with make(run.options.env, 1, run.options.seed, **run.options.env_options) as envs:
        spaces = envs.observation_space, envs.action_space
    try:
        assembly = assemble_for(run, *spaces)
    except SpaceError as error:
        if error.assembly is not None:
            if arguments.svg:
                _write_svg(error.assembly, arguments.svg)
            print(draw_text(error.assembly), file=sys.stderr)
        raise
    if arguments.svg:
        _write_svg(assembly, arguments.svg)
        print(f"drew {arguments.svg}: {len(assembly.calls)} calls, {assembly.parameter_count:,} parameters")
    else:
        print(draw_text(assembly))
    return 0


def _write_svg(assembly: Assembly, path: str) -> None:
    try:
        draw_svg(assembly, path)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}. Choose another --svg.") from error
