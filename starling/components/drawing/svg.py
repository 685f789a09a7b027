"""An assembly as a picture: an SVG file written by hand, no other program needed."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

from starling.components.drawing.layers import Sizes
from starling.components.drawing.layout import Layout, Track, lay_out
from starling.components.drawing.model import KINDS, Cluster, Flow, GraphModel, Node, graph_model, kind_of_space
from starling.components.drawing.text import short_number
from starling.components.graph.assembly import Assembly

__all__ = ["draw_svg", "svg_text"]

COLOURS = {"float": "#2f6db5", "int": "#c76a12", "bool": "#2c8a4b", "uint8": "#8a4bb0", "mixed": "#5c6570"}
RED, INK, PALE = "#c62828", "#1f2933", "#7b8794"
FILLS = ("#fbfcfd", "#f1f4f7", "#e7ecf1", "#dde4ea")  # of clusters, by depth
MARGIN, HEADER, LEGEND = 20.0, 44.0, 46.0
MOST_LINES, LINE, LETTER, BOLD = 6, 12.5, 6.1, 7.0  # what is written under a box; sizes of letters
STYLE = (
    f"text{{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;font-size:11px;fill:{INK}}}"
    f".title{{font-weight:bold;font-size:11px}}.head{{font-weight:bold;font-size:16px}}.pale{{fill:{PALE}}}"
    ".space{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:9.5px}"
)


def draw_svg(assembly: Assembly, path: str | Path) -> None:
    """Write the picture of an assembly to ``path``; a call that failed is red, with its reason under the title."""
    Path(path).write_text(svg_text(assembly), encoding="utf-8")


def svg_text(assembly: Assembly) -> str:
    """The picture of an assembly as the text of an SVG file."""
    model = graph_model(assembly)
    small = {c.nodes[0].key: c for c in model.root.walk() if c.path and len(c.nodes) == 1 and not c.clusters}
    layout = lay_out(_without(model, small), _sizes(model, small))
    reason = textwrap.wrap(assembly.error, 110) if assembly.failed else []
    upwards = any(backwards for _, _, backwards in layout.flows)
    legend, wide = _legend({e.kind for e in model.flows if e.finished and not e.failed}, bool(reason), upwards)
    width = max([layout.width + 2 * MARGIN, wide, *(2 * MARGIN + _text_width(line) for line in reason)])
    top = HEADER + (LINE + 3) * len(reason)
    parts = [_header(model, reason, assembly)]
    parts.append(f'<g transform="translate({MARGIN + (width - 2 * MARGIN - layout.width) / 2:.1f} {top:.1f})">')
    parts += [_cluster(cluster, depth, layout) for cluster, depth in _outside_in(model.root, small)]
    parts += [_flow(flow, tracks, backwards) for flow, tracks, backwards in layout.flows]
    parts += [_title(cluster, depth, layout) for cluster, depth in _outside_in(model.root, small)]
    parts += [_node(node, small.get(node.key), layout, not node.path) for node in model.nodes().values()]
    parts += ["</g>", f'<g transform="translate(0 {top + layout.height + 22:.1f})">{legend}</g>']
    height = top + layout.height + LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}"><style>{STYLE}</style>{_markers()}'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _without(model: GraphModel, small: dict[str, Cluster]) -> GraphModel:
    """The model with components of a single call as boxes instead of clusters."""

    def thinned(cluster: Cluster) -> Cluster:
        inside = [c.nodes[0] for c in cluster.clusters if c.nodes and c.nodes[0].key in small]
        kept = [thinned(c) for c in cluster.clusters if not (c.nodes and c.nodes[0].key in small)]
        return Cluster(cluster.path, cluster.name, cluster.component, cluster.parameters, inside + cluster.nodes, kept)

    return GraphModel(thinned(model.root), model.inputs, model.flows)


def _sizes(model: GraphModel, small: dict[str, Cluster]) -> Sizes:
    boxes, strips = {}, {}
    read = {flow.source for flow in model.flows} | {node.key for node in model.root.nodes}
    for key, node in model.nodes().items():
        lines = _lines(node) if key in read else []
        wide = max(
            [_text_width(line, bold=n == 0 and key in small) for n, line in enumerate(_words(node, small.get(key)))]
        )
        under = 2 * (max([len(line) for line in lines], default=0) * LETTER + 10)
        strips[key] = LINE * len(lines) + (6 if lines else 0)
        boxes[key] = (max(wide + 22, under), (38.0 if key in small else 26.0) + strips[key])
    titles = {f"cluster:{c.path}": _text_width(_label(c), bold=True) + 12 for c in model.root.walk()}
    return Sizes(boxes, strips, titles)


def _lines(node: Node) -> list[str]:
    kept = node.spaces if len(node.spaces) <= MOST_LINES else [*node.spaces[: MOST_LINES - 1], "…"]
    return [line if len(line) <= 40 else line[:39] + "…" for line in kept]


def _text_width(text: str, bold: bool = False) -> float:
    return len(text) * (BOLD + 0.4 if bold else BOLD)


def _label(cluster: Cluster) -> str:
    return f"{cluster.name if cluster.path else 'root'} · {cluster.component} · {_count(cluster.parameters)}"


def _count(parameters: int) -> str:
    return f"{parameters:,} parameters" if parameters else "no parameters"


def _words(node: Node, small: Cluster | None) -> list[str]:
    """What is written in a box."""
    if node.path is None:
        return [node.name]
    times = f" ×{len(node.calls)}" if len(node.calls) > 1 else ""
    call = f"{'✗ ' if node.failed else ''}{node.name}{times}{' ↻' if node.repeats else ''}"
    return [_label(small), call] if small else [call]


def _outside_in(cluster: Cluster, small: dict[str, Cluster], depth: int = 0) -> list[tuple[Cluster, int]]:
    found = [(cluster, depth)]
    for inner in cluster.clusters:
        if not (inner.nodes and inner.nodes[0].key in small):
            found += _outside_in(inner, small, depth + 1)
    return found


def _cluster(cluster: Cluster, depth: int, layout: Layout) -> str:
    box = layout.boxes[f"cluster:{cluster.path}"]
    fill = FILLS[min(depth, len(FILLS) - 1)]
    return _rect(box.x, box.y, box.width, box.height, 12, fill, "#b8c2cc")


def _title(cluster: Cluster, depth: int, layout: Layout) -> str:
    box = layout.boxes[f"cluster:{cluster.path}"]
    fill = FILLS[min(depth, len(FILLS) - 1)]  # a flow that comes in here passes behind the words
    behind = _rect(box.x + 10, box.y + 7, 6.95 * len(_label(cluster)) + 4, 15, 3, fill, fill)
    return f'{behind}<text class="title" x="{box.x + 12:.1f}" y="{box.y + 18:.1f}">{escape(_label(cluster))}</text>'


def _rect(x: float, y: float, width: float, height: float, radius: float, fill: str, line: str, more: str = "") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}" fill="{fill}" '
        f'stroke="{line}" {more}/>'
    )


def _node(node: Node, small: Cluster | None, layout: Layout, of_root: bool) -> str:
    box = layout.boxes[node.key]
    words = _words(node, small)
    wide = max(_text_width(line, bold=n == 0 and small is not None) for n, line in enumerate(words)) + 22
    height, left = (38.0 if small else 26.0), box.middle - wide / 2
    line = RED if node.failed else INK if of_root and node.path is not None else "#66788a"
    fill = "#fdeaea" if node.failed else "#fff8e1" if node.path is None else "#e3eefb" if of_root else "white"
    dashes = "" if node.finished else 'stroke-dasharray="4 3"'
    radius = height / 2 if node.path is None else 7
    parts = [f"<g><title>{escape(_tip(node))}</title>"]
    parts.append(
        _rect(left, box.y, wide, height, radius, fill, line, f'stroke-width="{1.8 if node.failed else 1.2}" {dashes}')
    )
    for n, text in enumerate(words):
        style = "title" if (small and n == 0) or not small else "pale"
        y = box.y + (16 + 15 * n if small else 17)
        colour = f' style="fill:{RED}"' if node.failed and n == len(words) - 1 else ""
        parts.append(
            f'<text class="{style}" x="{box.middle:.1f}" y="{y:.1f}" text-anchor="middle"{colour}>{escape(text)}</text>'
        )
    if box.height > height:
        for n, text in enumerate(_lines(node)):
            place = f'x="{box.middle + 10:.1f}" y="{box.y + height + 12 + LINE * n:.1f}"'
            parts.append(
                f'<text class="space" {place} style="fill:{COLOURS[kind_of_space(text)]}">{escape(text)}</text>'
            )
    return "".join([*parts, "</g>"])


def _tip(node: Node) -> str:
    """What a browser shows when the mouse rests on a box."""
    lines = [node.name if node.path is None else f"{node.path or '(root)'}.{node.name}"]
    for call in node.calls[:8]:
        arguments = ", ".join(f"{name}: {space}" for name, space in call.inputs.items())
        lines.append(f"({arguments}) → {call.output or '?'}, {short_number(call.flops)} FLOPs")
    return "\n".join(lines + node.spaces * (node.path is None))


def _flow(flow: Flow, tracks: list[Track], backwards: bool) -> str:
    colour = RED if flow.failed else "#b8c2cc" if not flow.finished else COLOURS[flow.kind]
    name = "failed" if flow.failed else "waiting" if not flow.finished else flow.kind
    path = f"M{tracks[0].x:.1f} {tracks[0].top:.1f}L{tracks[0].x:.1f} {tracks[0].bottom:.1f}"
    for before, track in itertools.pairwise(tracks):
        bend = (before.bottom + track.top) / 2
        path += f"C{before.x:.1f} {bend:.1f} {track.x:.1f} {bend:.1f} {track.x:.1f} {track.top:.1f}"
        path += f"L{track.x:.1f} {track.bottom:.1f}" if track.bottom > track.top else ""
    end = f'marker-{"start" if backwards else "end"}="url(#{name}{"-back" if backwards else ""})"'
    width = 2.2 if flow.failed else 1.4
    dashes = 'stroke-dasharray="5 4" ' if backwards or not flow.finished else ""
    tip = escape(f"{flow.source.removeprefix('input:')} → {flow.target}: {' or '.join(flow.spaces)}")
    look = f'fill="none" stroke="{colour}" stroke-width="{width}" {dashes}{end}'
    return f'<path d="{path}" {look}><title>{tip}</title></path>'


def _markers() -> str:
    colours = {**COLOURS, "failed": RED, "waiting": "#b8c2cc"}
    heads = []
    for name, colour in colours.items():
        shape = 'markerWidth="8" markerHeight="8" refY="4" orient="auto" markerUnits="userSpaceOnUse"'
        heads.append(f'<marker id="{name}" {shape} refX="7"><path d="M0 0.5L8 4L0 7.5z" fill="{colour}"/></marker>')
        heads.append(
            f'<marker id="{name}-back" {shape} refX="1"><path d="M8 0.5L0 4L8 7.5z" fill="{colour}"/></marker>'
        )
    return f"<defs>{''.join(heads)}</defs>"


def _header(model: GraphModel, reason: list[str], assembly: Assembly) -> str:
    title = f'<text class="head" x="{MARGIN}" y="28">{escape(model.root.component)}</text>'
    lines = []
    for n, line in enumerate(reason):
        mark = "✗ " if n == 0 else "  "
        lines.append(
            f'<text x="{MARGIN}" y="{46 + (LINE + 3) * n:.1f}" style="fill:{RED}">{escape(mark + line)}</text>'
        )
    return title + "".join(lines)


def _legend(kinds: set[str], failed: bool, upwards: bool) -> tuple[str, float]:
    """What the colours and shapes mean, along y = 0; and how wide that is."""
    x, parts = MARGIN, []
    lines = [(kind, COLOURS[kind]) for kind in KINDS if kind in kinds] + [("does not fit", RED)] * failed
    lines += [("up, to a later call", PALE)] * upwards
    for name, colour in lines:
        dashes = 'stroke-dasharray="5 4" ' if colour == PALE else ""
        parts.append(f'<path d="M{x:.1f} 0l26 0" stroke="{colour}" stroke-width="2" {dashes}/>')
        parts.append(f'<text x="{x + 31:.1f}" y="4">{name}</text>')
        x += 47 + _text_width(name)
    for name, radius, fill, line in (("input", 7, "#fff8e1", "#66788a"), ("API of the root", 4, "#e3eefb", INK)):
        parts.append(_rect(x, -7, 26, 14, radius, fill, line) + f'<text x="{x + 31:.1f}" y="4">{name}</text>')
        x += 47 + _text_width(name)
    notes = "B batch · T time · ×n calls"
    return "".join([*parts, f'<text class="pale" x="{x:.1f}" y="4">{notes}</text>']), x + _text_width(notes) + MARGIN
