"""``starling formation``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import tyro

from starling.core.errors import RequestError
from starling.formations import FORMATIONS, Counts, form

__all__ = ["formation"]


@dataclass(frozen=True, kw_only=True)
class FormationArguments(Counts):
    """Draw a formation: which roles, how many, and what flows between them."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help="see `starling list --formations`")]
    svg: Annotated[str | None, tyro.conf.arg(help="a file to draw into; without it the formation is printed")] = None


def formation(args: list[str]) -> int:
    """Draw a formation."""
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
    roles = ", ".join(f"{roles.count} {roles.kind}{'s' if roles.count > 1 else ''}" for roles in drawn.roles)
    print(f"drew {arguments.svg}: {roles}, {len(drawn.edges)} edges")
    return 0
