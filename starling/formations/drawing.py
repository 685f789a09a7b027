"""A formation as text: a box for every kind of role, arrows for its edges."""

from __future__ import annotations

from starling.formations.arrangement import Arrangement, Arrow, arrange
from starling.formations.base import Formation

__all__ = ["draw_text"]

TALL = 4  # lines of an arrow: name, the arrow itself, kind, pairing or nothing
LEAST = 5  # lines of a box, its borders included


class _Page:
    """Characters in rows that grow as they are written on."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []

    def write(self, x: int, y: int, text: str) -> None:
        while len(self._rows) <= y:
            self._rows.append([])
        row = self._rows[y]
        row += [" "] * (x + len(text) - len(row))
        for i, letter in enumerate(text):
            crossing = (row[x + i], letter) in (("─", "│"), ("│", "─"))
            row[x + i] = "┼" if crossing else letter

    def __str__(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self._rows)


def draw_text(formation: Formation, about: str = "") -> str:
    """The formation for a terminal; ``about`` is a line on what it is for."""
    plan = arrange(formation)
    page = _Page()
    boxes = _boxes(plan)
    height = max(LEAST, 2 + TALL * max([len(arrows) for arrows in plan.between], default=0), _tallest(plan))
    for i, (left, width) in enumerate(boxes):
        _box(page, left, width, height, _words(plan, i))
    for i, arrows in enumerate(plan.between):
        left, right = boxes[i][0] + boxes[i][1], boxes[i + 1][0]
        top = 1 + (height - 2 - TALL * len(arrows)) // 2
        for n, arrow in enumerate(arrows):
            _arrow(page, left, right, top + TALL * n, arrow)
    for n, arrow in enumerate(plan.far):
        _lane(page, boxes, height, n, len(plan.far), arrow)
    title = f"{formation.name}: {about}" if about else formation.name
    alone = "" if formation.edges else "\n\nNothing flows: one role does everything."
    return f"{title}\n\n{page}{alone}\n\n{_legend(formation)}"


def _words(plan: Arrangement, column: int) -> list[str]:
    """What is written in a box."""
    roles = plan.columns[column]
    words = [roles.kind if roles.count == 1 else f"{roles.kind} × {roles.count}"]
    words += ["■ ends the run"] * plan.ends(column)
    for arrow in plan.within[column]:
        words += ["", f"↻ {arrow.edge.name}", f"{arrow.kind} {arrow.pairing}"]
    return words


def _tallest(plan: Arrangement) -> int:
    return 2 + max(len(_words(plan, i)) for i in range(len(plan.columns)))


def _boxes(plan: Arrangement) -> list[tuple[int, int]]:
    """Left edge and width of every box."""
    found, x = [], 0
    for i in range(len(plan.columns)):
        width = 4 + max(len(line) for line in _words(plan, i))
        found.append((x, width))
        if i < len(plan.between):
            between = [line for arrow in plan.between[i] for line in _label(arrow)]
            x += width + 4 + max([len(line) for line in between], default=4)
    return found


def _label(arrow: Arrow) -> list[str]:
    return [arrow.edge.name, arrow.kind, arrow.pairing]


def _box(page: _Page, left: int, width: int, height: int, words: list[str]) -> None:
    page.write(left, 0, f"┌{'─' * (width - 2)}┐")
    for y in range(1, height - 1):
        page.write(left, y, f"│{' ' * (width - 2)}│")
    page.write(left, height - 1, f"└{'─' * (width - 2)}┘")
    top = (height - len(words)) // 2
    for n, line in enumerate(words):
        page.write(left + 1, top + n, line.center(width - 2))


def _arrow(page: _Page, left: int, right: int, y: int, arrow: Arrow) -> None:
    width = right - left
    name, kind, pairing = (line.center(width) for line in _label(arrow))
    shaft = "─" * (width - 1)
    page.write(left, y, name)
    page.write(left, y + 1, f"{shaft}▶" if arrow.source < arrow.target else f"◀{shaft}")
    page.write(left, y + 2, kind)
    page.write(left, y + 3, pairing)


def _lane(page: _Page, boxes: list[tuple[int, int]], bottom: int, n: int, lanes: int, arrow: Arrow) -> None:
    """An arrow under the boxes; longer ones run further down, and begin and end further out."""

    def middle(column: int, other: int) -> int:
        left, width = boxes[column]
        outwards = -1 if column < other else 1
        return left + width // 2 + outwards * 2 * (n - (lanes - 1) // 2)

    start, end = middle(arrow.source, arrow.target), middle(arrow.target, arrow.source)
    low, high, y = min(start, end), max(start, end), bottom + 1 + 2 * n
    label = " " + " · ".join(filter(None, _label(arrow))) + " "
    page.write(low, y, "└" + label.center(high - low - 1, "─") + "┘")
    for row in range(bottom, y):
        page.write(start, row, "│")
        page.write(end, row, "▲" if row == bottom else "│")


def _legend(formation: Formation) -> str:
    kinds = {edge.kind for edge in formation.edges}
    said = {
        "queue": "queue: items in order; who puts on a full one waits, and so does who takes from an empty one",
        "broadcast": "broadcast: the newest value; nobody waits to publish",
        "collective": "collective: the mean of what all offer; all wait for all",
    }
    return "\n".join(
        [text for kind, text in said.items() if kind in kinds] + [f"■ the run ends with the {formation.ends}"]
    )
