"""``starling formation``: what it looks like, and what a run in it takes of memory."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import tyro

from starling.core.errors import RequestError
from starling.core.memory import available_memory, human_bytes
from starling.formations import FORMATIONS, Counts, Formation, form

__all__ = ["formation"]


_MEMORY_HELP = "list what a run takes of memory; takes every flag of `starling train`, such as --algo and --env"


@dataclass(frozen=True, kw_only=True)
class FormationArguments(Counts):
    """Draw a formation: which roles, how many, and what flows between them."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help="see `starling list --formations`")]
    svg: Annotated[str | None, tyro.conf.arg(help="a file to draw into; without it the formation is printed")] = None
    memory: Annotated[bool, tyro.conf.arg(help=_MEMORY_HELP)] = False


def formation(args: list[str]) -> int:
    """Draw a formation, or list what a run in it takes of memory."""
    if "--memory" in args:
        return _memory([arg for arg in args if arg != "--memory"])
    arguments = tyro.cli(FormationArguments, args=args, prog="starling formation")
    kind = FORMATIONS[arguments.name]
    drawn = form(arguments.name, Counts(**{each.name: getattr(arguments, each.name) for each in fields(Counts)}))
    if arguments.svg is None:
        from starling.formations.drawing import draw_text

        print(draw_text(drawn, kind.text))
        return 0
    from starling.formations.picture import draw_svg

    try:
        draw_svg(drawn, arguments.svg, kind.text)
    except OSError as error:
        raise RequestError(f"cannot write {arguments.svg}: {error.strerror}. Choose another --svg.") from error
    print(f"drew {arguments.svg}: {_roles(drawn)}, {len(drawn.edges)} edges")
    return 0


def _memory(args: list[str]) -> int:
    """List what a run would take, from its spaces alone."""
    from starling.cli.train import parse
    from starling.experiments.program import Program
    from starling.experiments.reserving import reserved

    if not args or args[0].startswith("-"):
        raise RequestError("no formation was named; write `starling formation NAME --memory --algo … --env …`.")
    run = parse(["--formation", *args], prog="starling formation NAME --memory")
    program = Program(run)
    try:
        found = reserved(program)
    finally:
        program.close()
    where = f"{program.formation.name} on {run.executor}"
    print(f"{run.options.algo} on {run.options.env}, {where}: {_roles(program.formation)}")
    for each in sorted(found, key=lambda each: -each.total):
        several = f"{each.count} × {human_bytes(each.each)}" if each.count > 1 else ""
        print(f"  {each.whose:<14}{each.purpose:<22}{several:>18}{human_bytes(each.total):>11}")
    room = available_memory()
    of = "" if room is None else f" of {human_bytes(room)} that is available"
    print(f"  {'all':<54}{human_bytes(sum(each.total for each in found)):>11}{of}")
    return 0


def _roles(drawn: Formation) -> str:
    return ", ".join(f"{roles.count} {roles.kind}{'s' if roles.count > 1 else ''}" for roles in drawn.roles)
