"""An assembly as a tree of text: components, their calls with spaces, parameters and FLOPs.

DQN                                                       parameters    FLOPs
├─ act(obs: float32[B, 4], noise: float32[B]) → int32[B]                 3.4 k
└─ q · QNetwork                                                  386
   └─ …
"""

from __future__ import annotations

import re
import textwrap

from starling.components.drawing.model import Cluster, graph_model
from starling.components.graph.assembly import Assembly, CallRecord
from starling.components.graph.shapes import SIZES

__all__ = ["draw_text", "short_number"]

WIDTH = 110
NUMBERS = 24  # columns for parameters and FLOPs
_GLUE = "\xa0"


def draw_text(assembly: Assembly) -> str:
    """The tree of an assembly, at most 110 columns wide; a call that failed is marked ``✗``."""
    root = graph_model(assembly).root
    lines = [_line(root.component, f"{root.parameters:,}", "")]
    lines[0:0] = [f"{'':<{WIDTH - NUMBERS}}{'parameters':>13}{'FLOPs':>11}"]
    _add(lines, assembly, root, "")
    lines.append(f"FLOPs of one forward call with B = {SIZES['batch']}, T = {SIZES['time']}; ×n: so many calls.")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def short_number(value: float) -> str:
    """1234567 as ``1.23 M``."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 1000 or unit == " T":
            return f"{value:.3g}{unit}" if value < 1000 else f"{value:,.0f}{unit}"
        value /= 1000
    raise AssertionError("the largest unit ends the loop")


def _add(lines: list[str], assembly: Assembly, cluster: Cluster, prefix: str) -> None:
    entries: list[list[CallRecord] | Cluster] = [*_merged(cluster), *cluster.clusters]
    for i, entry in enumerate(entries):
        last = i == len(entries) - 1
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(entry, Cluster):
            title = f"{prefix}{branch}{entry.name} · {entry.component}"
            lines.append(_line(title, f"{entry.parameters:,}" if entry.parameters else "–", ""))
            _add(lines, assembly, entry, prefix + below)
        else:
            lines += _call_lines(assembly, entry, prefix + branch, prefix + below)


def _merged(cluster: Cluster) -> list[list[CallRecord]]:
    """The calls of a component's own APIs, those with the same API and spaces together."""
    groups: dict[tuple[str, ...], list[CallRecord]] = {}
    for node in cluster.nodes:
        for call in node.calls:
            groups.setdefault((call.api, str(call.inputs), call.output), []).append(call)
    return list(groups.values())


def _call_lines(assembly: Assembly, calls: list[CallRecord], first: str, rest: str) -> list[str]:
    call = calls[0]
    failed = assembly.failed in calls
    count = f" ×{len(calls)}" if len(calls) > 1 else ""
    arguments = ", ".join(f"{name}: {space or 'None'}" for name, space in call.inputs.items())
    finished = bool(call.output) or assembly.failed is None
    result = f" → {call.output or 'None'}" if finished else ""
    text = f"{'✗ ' if failed else ''}{call.api}({arguments}){result}{count}"
    glued = re.sub(r": |, (?=[^\[]*\])", lambda gap: gap[0].replace(" ", _GLUE), text)  # a space is not torn apart
    wrapped = textwrap.wrap(glued, max(30, WIDTH - NUMBERS - len(first) - 1), subsequent_indent="    ")
    pieces = [piece.replace(_GLUE, " ") for piece in wrapped]
    lines = [_line(f"{(rest if i else first)}{piece}", "", "") for i, piece in enumerate(pieces)]
    lines[0] = _line(f"{first}{pieces[0]}", "", short_number(call.flops) if finished else "")
    if failed:
        for part in assembly.error.splitlines():
            lines += [f"{rest}    ✗ {piece}" for piece in textwrap.wrap(part, WIDTH - len(rest) - 6)]
    return lines


def _line(left: str, parameters: str, flops: str) -> str:
    room = WIDTH - NUMBERS
    cut = left if len(left) <= room else left[: room - 1] + "…"
    return f"{cut:<{room}}{parameters:>13}{flops:>11}"
