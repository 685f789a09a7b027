"""What there is to draw of an assembly: clusters (components), nodes (API calls, inputs) and flows (of data)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from starling.components.base import Component, children
from starling.components.graph.assembly import Assembly, CallRecord
from starling.components.graph.shapes import describe

__all__ = ["KINDS", "Cluster", "Flow", "GraphModel", "Node", "graph_model", "kind_of_space", "parameter_count"]

KINDS = ("float", "int", "bool", "uint8", "mixed")
_LEAF = re.compile(r"(?:([\w.]+): )?((float|uint8|int|bool)\w*\[[^\]]*\])")


@dataclass
class Node:
    """An input of the root, or every call of one API of one component."""

    key: str
    name: str
    path: str | None  # of the component; None for an input
    spaces: list[str]  # what comes out, one leaf a line
    calls: list[CallRecord] = field(default_factory=list)
    failed: bool = False
    finished: bool = True
    repeats: bool = False  # its result comes back to it: a recurrence


@dataclass
class Cluster:
    """A component, with the nodes of its own APIs and the components inside it."""

    path: str
    name: str
    component: str
    parameters: int
    nodes: list[Node] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)

    def walk(self) -> Iterator[Cluster]:
        """This cluster and all inside it."""
        yield self
        for inner in self.clusters:
            yield from inner.walk()


@dataclass
class Flow:
    """Data that flows from one node to another."""

    source: str
    target: str
    kind: str
    spaces: list[str]
    failed: bool = False
    finished: bool = True


@dataclass
class GraphModel:
    """All there is to draw."""

    root: Cluster
    inputs: list[Node]
    flows: list[Flow]

    def nodes(self) -> dict[str, Node]:
        """Every node by its key."""
        return {node.key: node for node in [*self.inputs, *(n for c in self.root.walk() for n in c.nodes)]}


def leaf_spaces(text: str) -> list[str]:
    """A space in words, one leaf a line: ``["action: int32[B]", "reward: float32[B]"]``."""
    return [f"{name}: {space}" if name else space for name, space, _ in _LEAF.findall(text)] or [text] * bool(text)


def kind_of_space(text: str) -> str:
    """float, int, bool or uint8; mixed for a tree of several."""
    found = {kind for _, _, kind in _LEAF.findall(text)}
    return found.pop() if len(found) == 1 else "mixed"


def parameter_count(assembly: Assembly, path: str) -> int:
    """How many numbers the parameters of a component hold, those of the components inside it included."""
    total = 0
    for name, spec in assembly.parameters.items():
        if not path or name.startswith(f"{path}."):
            size = 1
            for n in spec.shape:
                size *= n
            total += size
    return total


def graph_model(assembly: Assembly) -> GraphModel:
    """The clusters, nodes and flows of an assembly; calls of one API are one node."""
    inputs = {name: describe(space.zeros_with({"batch": 13, "time": 11})) for name, space in assembly.inputs.items()}
    inputs.setdefault("progress", "float32")  # of the run, which every learner's state has
    flows = _flows(assembly, inputs)
    used = {flow.source for flow in flows}
    shown = [Node(f"input:{name}", name, None, leaf_spaces(text)) for name, text in inputs.items()]
    nodes: dict[str, Node] = {}
    for call in assembly.calls:
        node = nodes.setdefault(_key(call), Node(_key(call), call.api, call.path, []))
        node.calls.append(call)
        node.spaces = node.spaces or leaf_spaces(call.output)
        node.failed |= call is assembly.failed
        node.finished &= bool(call.output) or assembly.failed is None
    for flow in flows:
        if flow.source == flow.target:
            nodes[flow.source].repeats = True
    root = _cluster(assembly, assembly.root, "", type(assembly.root).__name__, nodes)
    kept = [flow for flow in flows if flow.source != flow.target]
    return GraphModel(root, [node for node in shown if node.key in used], kept)


def _key(call: CallRecord) -> str:
    return f"{call.path}.{call.api}"


def _cluster(assembly: Assembly, component: Component, path: str, name: str, nodes: dict[str, Node]) -> Cluster:
    own = [node for node in nodes.values() if node.path == path]
    cluster = Cluster(path, name, type(component).__name__, parameter_count(assembly, path), own)
    for child_name, child in children(component):
        inner = _cluster(assembly, child, f"{path}.{child_name}" if path else child_name, child_name, nodes)
        if inner.nodes or inner.clusters:
            cluster.clusters.append(inner)
    return cluster


def _flows(assembly: Assembly, inputs: dict[str, str]) -> list[Flow]:
    composite = {call.parent for call in assembly.calls}
    merged: dict[tuple[str, str, str], Flow] = {}

    def add(source: Any, call: CallRecord, space: str, failed: bool = False, finished: bool = True) -> None:
        start = f"input:{source}" if isinstance(source, str) else _key(assembly.calls[source])
        kind = kind_of_space(space)
        flow = merged.setdefault((start, _key(call), kind), Flow(start, _key(call), kind, []))
        if space not in flow.spaces:
            flow.spaces.append(space)
        flow.failed |= failed
        flow.finished &= finished

    for call in assembly.calls:
        if call is assembly.failed or call.index not in composite:
            for source, _, space in call.flows:
                add(source, call, space, failed=call is assembly.failed)
        else:
            # Its arguments went to the calls inside it; what it does itself is to put their results together.
            for source in call.returned:
                add(source, call, inputs[source] if isinstance(source, str) else assembly.calls[source].output)
    waiting = assembly.failed
    while waiting is not None and waiting.parent is not None:
        parent = assembly.calls[waiting.parent]
        add(waiting.index, parent, "", finished=False)
        waiting = parent
    return list(merged.values())
