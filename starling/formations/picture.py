"""A formation as a picture: an SVG file written by hand, no other program needed."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from starling.components.drawing.svg import INK, PALE, STYLE
from starling.formations.arrangement import Arrangement, Arrow, arrange
from starling.formations.base import Formation

__all__ = ["draw_svg", "svg_text"]

COLOURS = {"queue": "#2f6db5", "broadcast": "#c76a12", "collective": "#2c8a4b"}
DASHES = {"queue": "", "broadcast": 'stroke-dasharray="6 4"', "collective": 'stroke-dasharray="2 3"'}
MEANS = {
    "queue": "queue: in order, bounded",
    "broadcast": "broadcast: the newest value",
    "collective": "collective: the mean of all",
}
FILLS = {"actor": "#e7f4ea", "worker": "#e7f4ea", "inference": "#fff3e0", "evaluator": "#f4f1fa", "buffer": "#eef3f8"}
FILL = "#e3eefb"  # of those that learn
SINGLY = 4  # roles of a kind that are drawn each; more are a stack
MARGIN, HEADER = 24.0, 58.0
WIDTH, MEMBER, GAP = 150.0, 32.0, 12.0  # of a group of roles; height of one role, space between two
ARROW, LANE, LOOP = 62.0, 44.0, 40.0  # heights of an arrow with its words, of one under the boxes, of a loop above
LETTER = 6.6  # width of a letter, about


@dataclass(frozen=True)
class _Group:
    """Where the roles of a kind are."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


def draw_svg(formation: Formation, path: str | Path, about: str = "") -> None:
    """Write the picture of a formation to ``path``; ``about`` is a line on what it is for."""
    Path(path).write_text(svg_text(formation, about), encoding="utf-8")


def svg_text(formation: Formation, about: str = "") -> str:
    """The picture of a formation as the text of an SVG file."""
    plan = arrange(formation)
    groups = _groups(plan)
    legend, wide = _legend(formation)
    inner = groups[-1].x + groups[-1].width - MARGIN
    lines = textwrap.wrap(about, 90)
    down = 16.0 * max(0, len(lines) - 1)
    width = max(inner, wide, *(LETTER * len(line) for line in lines or [""])) + 2 * MARGIN
    bottom = groups[0].bottom + LANE * len(plan.far)
    height = down + bottom + 58
    parts = [_header(formation.name, lines)]
    parts.append(f'<g transform="translate({(width - 2 * MARGIN - inner) / 2:.1f} {down:.1f})">')
    parts += [_group(plan, i, group) for i, group in enumerate(groups)]
    for i, arrows in enumerate(plan.between):
        parts += _arrows(arrows, groups[i], groups[i + 1])
    parts += [_lane(arrow, n, groups) for n, arrow in enumerate(plan.far)]
    parts += [_loop(arrows, groups[i]) for i, arrows in enumerate(plan.within) if arrows]
    parts += ["</g>", f'<g transform="translate({MARGIN} {height - 20:.1f})">{legend}</g>']
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}"><style>{STYLE}</style>{_heads()}'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _groups(plan: Arrangement) -> list[_Group]:
    """All groups are as tall as the one that needs most, so that arrows between them are level."""
    most = max(_members(roles.count) for roles in plan.columns)
    arrows = max([len(arrows) for arrows in plan.between], default=0)
    height = max(74.0, 52 + most * (MEMBER + GAP) + 14, ARROW * arrows + 16)
    top = HEADER + LOOP * any(plan.within) + 8
    found, x = [], MARGIN
    for i in range(len(plan.columns)):
        found.append(_Group(x, top, WIDTH, height))
        if i < len(plan.between):
            words = [line for arrow in plan.between[i] for line in (arrow.edge.name, arrow.kind, arrow.pairing)]
            x += WIDTH + max(110.0, 40 + LETTER * max([len(line) for line in words], default=0))
    return found


def _members(count: int) -> int:
    """How many boxes are drawn in a group."""
    return 0 if count == 1 else count if count <= SINGLY else 2


def _rect(x: float, y: float, width: float, height: float, radius: float, fill: str, line: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"'
    return f'<rect {place} fill="{fill}" stroke="{line}" {more}/>'


def _text(x: float, y: float, text: str, style: str = "", colour: str = "") -> str:
    look = (f' class="{style}"' if style else "") + (f' style="fill:{colour}"' if colour else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle"{look}>{escape(text)}</text>'


def _group(plan: Arrangement, column: int, group: _Group) -> str:
    roles, ends = plan.columns[column], plan.ends(column)
    fill = FILLS.get(roles.kind, FILL)
    line = f'stroke-width="{2.6 if ends else 1.2}"'
    parts = [_rect(group.x, group.y, group.width, group.height, 10, fill, INK if ends else "#66788a", line)]
    boxes = _members(roles.count)
    content = 18 + 16 * ends + (boxes and 10 + boxes * (MEMBER + GAP) - GAP)
    y = group.y + (group.height - content) / 2 + 13
    parts.append(_text(group.middle, y, roles.kind if roles.count == 1 else f"{roles.kind} × {roles.count}", "title"))
    if ends:
        y += 16
        parts.append(_text(group.middle, y, "■ ends the run", "pale"))
    y += 12
    if roles.count > SINGLY:
        parts.append(_stack(group, y, roles.kind, roles.count))
    else:
        for index in range(boxes):
            top = y + index * (MEMBER + GAP)
            parts.append(_rect(group.x + 16, top, group.width - 32, MEMBER, 6, "white", "#66788a"))
            parts.append(_text(group.middle, top + MEMBER / 2 + 4, f"{roles.kind}-{index}"))
    return "".join(parts)


def _stack(group: _Group, y: float, kind: str, count: int) -> str:
    """Three cards, one over the other, for as many roles as there are."""
    parts = []
    for card in (2, 1, 0):
        x, top = group.x + 12 + 7 * card, y + 20 - 10 * card + 6
        parts.append(_rect(x, top, group.width - 40, MEMBER + 8, 6, "white", "#66788a"))
    parts.append(
        _text(group.x + 12 + (group.width - 40) / 2, y + 26 + MEMBER / 2 + 8, f"{kind}-0 … {kind}-{count - 1}")
    )
    return "".join(parts)


def _line(edge: str, path: str, both: bool = False) -> str:
    start = f'marker-start="url(#{edge}-start)"' if both else ""
    look = f'fill="none" stroke="{COLOURS[edge]}" stroke-width="1.8" {DASHES[edge]}'
    return f'<path d="{path}" {look} {start} marker-end="url(#{edge})"/>'


def _arrows(arrows: tuple[Arrow, ...], left: _Group, right: _Group) -> list[str]:
    """The edges between neighbours, one under the other."""
    start, end = left.x + left.width + 3, right.x - 3
    middle = (start + end) / 2
    top = left.y + (left.height - ARROW * len(arrows)) / 2
    parts = []
    for n, arrow in enumerate(arrows):
        y, kind = top + ARROW * n + 24, arrow.edge.kind
        ends = (start, end) if arrow.source < arrow.target else (end, start)
        parts.append(_line(kind, f"M{ends[0]:.1f} {y:.1f}L{ends[1]:.1f} {y:.1f}"))
        parts.append(_text(middle, y - 7, arrow.edge.name, "title", COLOURS[kind]))
        parts.append(_text(middle, y + 14, arrow.kind))
        if arrow.pairing:
            parts.append(_text(middle, y + 27, arrow.pairing, "pale"))
    return parts


def _lane(arrow: Arrow, n: int, groups: list[_Group]) -> str:
    """An edge between groups that are no neighbours: under them."""
    source, target = groups[arrow.source], groups[arrow.target]
    apart = 18.0 * n * (1 if source.x > target.x else -1)
    y, kind = source.bottom + LANE * (n + 1) - 14, arrow.edge.kind
    start, end, first = source.middle + apart, target.middle - apart, source.bottom + 3
    middle, colour = (start + end) / 2, COLOURS[kind]
    path = f"M{start:.1f} {first:.1f}L{start:.1f} {y:.1f}L{end:.1f} {y:.1f}L{end:.1f} {first:.1f}"
    words = _text(middle, y - 7, arrow.edge.name, "title", colour)
    return _line(kind, path) + words + _text(middle, y + 14, " · ".join(filter(None, (arrow.kind, arrow.pairing))))


def _loop(arrows: tuple[Arrow, ...], group: _Group) -> str:
    """The edges within a group, all as one line over it, since they join the same roles."""
    kind, half, low, high = arrows[0].edge.kind, 44.0, group.y - 3, group.y - 14
    left, right = group.middle - half, group.middle + half
    path = f"M{left:.1f} {low:.1f}L{left:.1f} {high:.1f}L{right:.1f} {high:.1f}L{right:.1f} {low:.1f}"
    names = " · ".join(arrow.edge.name for arrow in arrows)
    about = _text(group.middle, high - 6, f"{arrows[0].kind} {arrows[0].pairing}")
    return _line(kind, path, both=True) + about + _text(group.middle, high - 20, names, "title", COLOURS[kind])


def _heads() -> str:
    heads = []
    for name, colour in COLOURS.items():
        shape = 'markerWidth="9" markerHeight="9" refY="4.5" orient="auto" markerUnits="userSpaceOnUse"'
        heads.append(f'<marker id="{name}" {shape} refX="8"><path d="M0 0.5L9 4.5L0 8.5z" fill="{colour}"/></marker>')
        heads.append(
            f'<marker id="{name}-start" {shape} refX="1"><path d="M9 0.5L0 4.5L9 8.5z" fill="{colour}"/></marker>'
        )
    return f"<defs>{''.join(heads)}</defs>"


def _header(name: str, about: list[str]) -> str:
    parts = [f'<text class="head" x="{MARGIN}" y="28">{escape(name)}</text>']
    parts += [f'<text x="{MARGIN}" y="{46 + 16 * n}">{escape(line)}</text>' for n, line in enumerate(about)]
    return "".join(parts)


def _legend(formation: Formation) -> tuple[str, float]:
    """What the lines mean, along y = 0; and how wide that is."""
    x, parts = 0.0, []
    for kind, text in MEANS.items():
        if any(edge.kind == kind for edge in formation.edges):
            parts.append(f'<path d="M{x:.1f} 0l26 0" stroke="{COLOURS[kind]}" stroke-width="2" {DASHES[kind]}/>')
            parts.append(f'<text class="pale" x="{x + 31:.1f}" y="4">{text}</text>')
            x += 45 + LETTER * len(text)
    if not parts:
        parts.append(f'<text style="fill:{PALE}" x="0" y="4">nothing flows: one role does everything</text>')
        x = LETTER * 40
    return "".join(parts), x
