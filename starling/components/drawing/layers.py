"""Where things go: a layered layout, top down, of clusters inside clusters.

Every cluster is laid out by itself, those inside it first, and is then one box for the cluster around it: so clusters
stay whole. Within one, boxes are put into layers by their longest path from a start, ordered by barycentres to cross
few flows, and moved towards their neighbours. A flow that passes a layer gets a lane of its own there, so that it
runs beside the boxes and not through them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starling.components.drawing.model import Cluster, GraphModel

__all__ = ["Level", "Placed", "Sizes", "lay_out_level"]

PAD, TITLE, GAP_X, GAP_Y, LANE = 14.0, 26.0, 18.0, 34.0, 10.0


@dataclass(frozen=True)
class Sizes:
    """How much room things take: whole boxes (with what is written under them), and titles of clusters."""

    boxes: Mapping[str, tuple[float, float]]
    strips: Mapping[str, float]  # the part of a box's height that is written under it
    titles: Mapping[str, float]


@dataclass
class Placed:
    """A rectangle on the page; ``inner`` is the level inside a cluster."""

    key: str
    width: float
    height: float
    x: float = 0.0  # left
    y: float = 0.0  # top
    inner: Level | None = None
    lane: bool = False

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass
class Level:
    """The inside of one cluster: layers of rectangles, from top to bottom."""

    layers: list[list[Placed]]
    chains: dict[int, list[Placed]]  # flow number -> the rectangles and lanes it goes through here
    depth: dict[str, int]  # rectangle -> layer
    width: float = 0.0
    height: float = 0.0
    tops: list[float] = field(default_factory=list)  # of the layers
    bottoms: list[float] = field(default_factory=list)


def lay_out_level(
    cluster: Cluster,
    model: GraphModel,
    homes: dict[str, list[str]],
    ends: list[tuple[str, str]],
    bundles: list[tuple[str, str]],
    sizes: Sizes,
) -> Level:
    """Lay out the inside of a cluster; positions are relative to its own top left corner."""
    items: dict[str, Placed] = {}
    for node in [*(model.inputs if not cluster.path else []), *cluster.nodes]:
        items[node.key] = Placed(node.key, *sizes.boxes[node.key])
    for inner in cluster.clusters:
        level = lay_out_level(inner, model, homes, ends, bundles, sizes)
        items[f"cluster:{inner.path}"] = Placed(f"cluster:{inner.path}", level.width, level.height, inner=level)
    around = f"cluster:{cluster.path}"
    links: dict[int, tuple[str | None, str | None]] = {}
    for i, (start, end) in enumerate(ends):
        a, b = _inside(homes[start], around), _inside(homes[end], around)
        if a != b:
            links[i] = (a, b)
    starts = {node.key for node in model.inputs}
    depth = _depths(items, [(a, b) for a, b in links.values() if a and b], starts)
    layers: list[list[Placed]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for key, item in items.items():
        layers[depth[key]].append(item)
    level = Level(layers, {}, depth)
    _add_lanes(level, links, bundles, items)
    neighbours = _neighbours(level)
    _order(level.layers, neighbours)
    _place(level, neighbours, sizes.titles.get(around, 0.0))
    return level


def _inside(home: list[str], around: str) -> str | None:
    """The rectangle of the cluster ``around`` that a node is in; None for a node outside the cluster."""
    return home[home.index(around) + 1] if around in home else None


def _depths(items: Mapping[str, Placed], pairs: list[tuple[str, str]], inputs: set[str]) -> dict[str, int]:
    """The longest path to each rectangle; an input moves down to just above its first reader."""
    depth = dict.fromkeys(items, 0)
    for _ in items:
        for a, b in pairs:
            depth[b] = max(depth[b], depth[a] + 1)
    for key in inputs & set(items):
        readers = [depth[b] for a, b in pairs if a == key]
        depth[key] = max(0, min(readers, default=1) - 1)
    return depth


def _add_lanes(
    level: Level,
    links: Mapping[int, tuple[str | None, str | None]],
    bundles: list[tuple[str, str]],
    items: Mapping[str, Placed],
) -> None:
    lanes: dict[tuple[Any, int], Placed] = {}
    for i, (a, b) in links.items():
        first = -1 if a is None else level.depth[a]
        last = len(level.layers) if b is None else level.depth[b]
        chain = [] if a is None else [items[a]]
        for n in range(first + 1, last):
            lane = lanes.get((bundles[i], n))
            if lane is None:
                lane = lanes[bundles[i], n] = Placed(f"lane:{i}:{n}", LANE, 0.0, lane=True)
                level.layers[n].append(lane)
                level.depth[lane.key] = n
            chain.append(lane)
        level.chains[i] = chain if b is None else [*chain, items[b]]


def _neighbours(level: Level) -> dict[str, tuple[list[str], list[str]]]:
    """For each rectangle those it is joined to in the layer above and in the layer below."""
    found: dict[str, tuple[list[str], list[str]]] = {item.key: ([], []) for layer in level.layers for item in layer}
    for chain in level.chains.values():
        for upper, lower in itertools.pairwise(chain):
            found[lower.key][0].append(upper.key)
            found[upper.key][1].append(lower.key)
    return found


def _order(layers: list[list[Placed]], neighbours: Mapping[str, tuple[list[str], list[str]]]) -> None:
    """Sweep down and up, sorting every layer by the mean place of its neighbours; keep the order that crosses least."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, neighbours)
    for sweep in range(12):
        downwards = sweep % 2 == 0
        order = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
        for n in order:
            fixed = {item.key: i for i, item in enumerate(layers[n - 1 if downwards else n + 1])}
            places = {}
            for i, item in enumerate(layers[n]):
                there = [fixed[key] for key in neighbours[item.key][0 if downwards else 1] if key in fixed]
                places[item.key] = sum(there) / len(there) if there else float(i)
            layers[n].sort(key=lambda item: places[item.key])
        crossings = _crossings(layers, neighbours)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer, found in zip(layers, best):
        layer[:] = found


def _crossings(layers: list[list[Placed]], neighbours: Mapping[str, tuple[list[str], list[str]]]) -> int:
    total = 0
    for upper, lower in itertools.pairwise(layers):
        place = {item.key: i for i, item in enumerate(lower)}
        crossing = [(i, place[key]) for i, item in enumerate(upper) for key in neighbours[item.key][1] if key in place]
        total += sum((a - c) * (b - d) < 0 for n, (a, b) in enumerate(crossing) for c, d in crossing[:n])
    return total


def _place(level: Level, neighbours: Mapping[str, tuple[list[str], list[str]]], title: float) -> None:
    items = {item.key: item for layer in level.layers for item in layer}
    for layer in level.layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(16):
        for layer in level.layers if sweep % 2 == 0 else reversed(level.layers):
            wished = []
            for item in layer:
                joined = [items[key].middle for side in neighbours[item.key] for key in side]
                wished.append(sum(joined) / len(joined) if joined else item.middle)
            _spread(layer, wished)
    left = min((item.x for item in items.values()), default=0.0)
    right = max((item.x + item.width for item in items.values()), default=0.0)
    shift = PAD - left + max(0.0, (title - (right - left)) / 2)
    y = TITLE
    for n, layer in enumerate(level.layers):
        passing = sum(len(chain) > 1 for chain in level.chains.values())
        y += GAP_Y * (0.3 if n == 0 else 1.0) + (min(24.0, 1.5 * passing) if n else 0.0)
        height = max((item.height for item in layer), default=0.0)
        level.tops.append(y)
        level.bottoms.append(y + height)
        for item in layer:
            item.x, item.y = item.x + shift, y
        y += height
    level.width, level.height = max(right - left, title) + 2 * PAD, y + PAD


def _spread(layer: list[Placed], wished: list[float]) -> None:
    """Put the middles as near to ``wished`` as the order and the gaps allow: blocks that would overlap share a mean."""
    blocks: list[tuple[list[Placed], list[float], float]] = []  # (items, wish for the first middle per item, width)
    offset = 0.0
    for item, wish in zip(layer, wished):
        gap = GAP_X if not item.lane else GAP_X / 2
        blocks.append(([item], [wish - item.width / 2], item.width + gap))
        while len(blocks) > 1 and _start(blocks[-2]) + blocks[-2][2] > _start(blocks[-1]):
            items, wishes, width = blocks.pop()
            before, earlier, shift = blocks.pop()
            blocks.append((before + items, earlier + [w - shift for w in wishes], shift + width))
    for items, wishes, _ in blocks:
        offset = sum(wishes) / len(wishes)
        for item in items:
            item.x = offset
            offset += item.width + (GAP_X if not item.lane else GAP_X / 2)


def _start(block: tuple[list[Placed], list[float], float]) -> float:
    return sum(block[1]) / len(block[1])
