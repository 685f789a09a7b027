"""Where everything in a drawing goes: rectangles on the page, and flows as vertical tracks joined by curves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starling.components.drawing.layers import Level, Placed, Sizes, lay_out_level
from starling.components.drawing.model import Cluster, Flow, GraphModel

__all__ = ["Layout", "Track", "lay_out"]

PORT = 16.0  # between the arrowheads at one box


@dataclass(frozen=True)
class Track:
    """A straight vertical piece of a flow."""

    x: float
    top: float
    bottom: float


@dataclass
class Layout:
    """All rectangles by key with their places on the page, and every flow as straight tracks to be joined by curves."""

    boxes: dict[str, Placed]
    flows: list[tuple[Flow, list[Track], bool]]  # (flow, tracks, whether it runs upwards)
    width: float
    height: float


def lay_out(model: GraphModel, sizes: Sizes) -> Layout:
    """Places for everything in ``model``."""
    homes = _homes(model)
    backward = _backward(model, homes)
    ends = [(e.target, e.source) if i in backward else (e.source, e.target) for i, e in enumerate(model.flows)]
    kinds = [f"back {flow.kind}" if i in backward else flow.kind for i, flow in enumerate(model.flows)]
    bundles = [(start, kind) for (start, _), kind in zip(ends, kinds)]  # these run together until they part
    level = lay_out_level(model.root, model, homes, ends, bundles, sizes)
    boxes: dict[str, Placed] = {}
    _place_on_page(level, 0.0, 0.0, boxes)
    boxes["cluster:"] = Placed("cluster:", level.width, level.height, 0.0, 0.0, level)
    routes = [_route(i, start, end, homes, boxes) for i, (start, end) in enumerate(ends)]
    _leave(routes, bundles, boxes, sizes)
    _arrive(routes, ends, boxes)
    flows = [(flow, routes[i].tracks, i in backward) for i, flow in enumerate(model.flows)]
    return Layout(boxes, flows, level.width, level.height)


def _homes(model: GraphModel) -> dict[str, list[str]]:
    """For every node the clusters around it, from the outermost in; the last entry is the node itself."""
    homes = {node.key: ["cluster:", node.key] for node in model.inputs}

    def visit(cluster: Cluster, around: list[str]) -> None:
        here = [*around, f"cluster:{cluster.path}"]
        homes.update({node.key: [*here, node.key] for node in cluster.nodes})
        for inner in cluster.clusters:
            visit(inner, here)

    visit(model.root, [])
    return homes


def _parting(first: list[str], second: list[str]) -> tuple[str, str]:
    """The two different rectangles, inside the same cluster, that hold the two ends of a flow."""
    return next((a, b) for a, b in zip(first, second) if a != b)


def _backward(model: GraphModel, homes: dict[str, list[str]]) -> set[int]:
    """The flows to turn round so that no cluster has a cycle, found by walking depth first from the inputs."""
    pairs = [_parting(homes[e.source], homes[e.target]) for e in model.flows]
    after: dict[str, list[str]] = {}
    for a, b in pairs:
        after.setdefault(a, []).append(b)
    state: dict[str, int] = {}
    cycles: set[tuple[str, str]] = set()

    def walk(key: str) -> None:
        state[key] = 1
        for following in after.get(key, []):
            if state.get(following) == 1:
                cycles.add((key, following))
            elif following not in state:
                walk(following)
        state[key] = 2

    for key in sorted(after, key=lambda key: not key.startswith("input:")):
        if key not in state:
            walk(key)
    return {i for i, pair in enumerate(pairs) if pair in cycles}


def _place_on_page(level: Level, x: float, y: float, boxes: dict[str, Placed]) -> None:
    """Turn places inside clusters into places on the page."""
    level.tops, level.bottoms = [y + top for top in level.tops], [y + bottom for bottom in level.bottoms]
    for layer in level.layers:
        for item in layer:
            item.x, item.y = item.x + x, item.y + y
            if not item.lane:
                boxes[item.key] = item
            if item.inner is not None:
                _place_on_page(item.inner, item.x, item.y, boxes)


@dataclass
class Route:
    """The tracks of one flow, from a box down to another."""

    tracks: list[Track]
    start: str
    end: str


def _route(i: int, start: str, end: str, homes: dict[str, list[str]], boxes: dict[str, Placed]) -> Route:
    """Down through the clusters around the start, across the one that holds both ends, into those around the end."""
    first, second = homes[start], homes[end]
    parting = next(n for n, (a, b) in enumerate(zip(first, second)) if a != b)
    here = Track(boxes[start].middle, boxes[start].y, boxes[start].y)
    tracks: list[Track] = []
    for around in reversed(first[parting - 1 : -1]):
        level = _inner(boxes[around])
        item, *lanes = level.chains[i]
        here = replace(here, bottom=level.bottoms[level.depth[item.key]])
        for lane in lanes:
            if lane.lane:
                tracks.append(here)
                here = _lane_track(level, lane)
    tracks.append(here)
    outer = _inner(boxes[first[parting - 1]])
    top = outer.tops[outer.depth[second[parting]]]  # before it, everything may be in the way; below it, nothing is
    for around in second[parting:-1]:
        level = _inner(boxes[around])
        *lanes, item = level.chains[i]
        for lane in lanes:
            tracks.append(replace(_lane_track(level, lane), top=top))
            top = level.tops[level.depth[lane.key] + 1]
    tracks.append(Track(boxes[end].middle, top, boxes[end].y))
    return Route(tracks, start, end)


def _inner(box: Placed) -> Level:
    assert box.inner is not None
    return box.inner


def _lane_track(level: Level, lane: Placed) -> Track:
    n = level.depth[lane.key]
    return Track(lane.middle, level.tops[n], level.bottoms[n])


def _leave(routes: list[Route], bundles: list[tuple[str, str]], boxes: dict[str, Placed], sizes: Sizes) -> None:
    """Flows leave a box side by side, one place for each kind of data."""
    kinds: dict[str, list[str]] = {}
    for start, kind in bundles:
        if kind not in kinds.setdefault(start, []):
            kinds[start].append(kind)
    for route, (start, kind) in zip(routes, bundles):
        box, several = boxes[start], kinds[start]
        x = box.middle + PORT / 2 * (several.index(kind) - (len(several) - 1) / 2)
        route.tracks[0] = Track(x, box.y + box.height - sizes.strips[start], route.tracks[0].bottom)


def _arrive(routes: list[Route], ends: list[tuple[str, str]], boxes: dict[str, Placed]) -> None:
    """Flows arrive at a box side by side, in the order in which they come."""
    for end in {end for _, end in ends}:
        box = boxes[end]
        coming = sorted((route for route in routes if route.end == end), key=lambda route: route.tracks[-2].x)
        step = min(PORT, box.width / (len(coming) + 1))
        for n, route in enumerate(coming):
            x = box.middle + step * (n - (len(coming) - 1) / 2)
            route.tracks[-1] = replace(route.tracks[-1], x=x)
