"""Trees: nested dicts, tuples and lists whose leaves are arrays or scalars.

A leaf's path joins the keys on its way with dots: ``q.torso.w0``. Dicts are walked in
sorted order, so two equal trees list their leaves in the same order whatever built them.
``None`` is a tree without leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["Tree", "items", "leaves", "map_leaves", "map_with_path", "nest", "opened", "refilled"]

Tree = Any


def items(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for each leaf."""
    if tree is None:
        return
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from items(tree[key], f"{path}.{key}" if path else str(key))
    elif isinstance(tree, (tuple, list)):
        for i, child in enumerate(tree):
            yield from items(child, f"{path}.{i}" if path else str(i))
    else:
        yield path, tree


def leaves(tree: Tree) -> list[Any]:
    """The leaves, in the order of ``items``."""
    found: list[Any] = []
    _gather(tree, found)
    return found


def _gather(tree: Tree, found: list[Any]) -> None:
    if isinstance(tree, dict):
        for key in sorted(tree):
            _gather(tree[key], found)
    elif isinstance(tree, (tuple, list)):
        for child in tree:
            _gather(child, found)
    elif tree is not None:
        found.append(tree)


def map_leaves(fn: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """A tree of the same shape with ``fn(leaf, *other_leaves)`` at each leaf."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        if not others:  # most calls, and many of them for each step of a run
            return type(tree)({key: map_leaves(fn, tree[key]) for key in sorted(tree)})
        return type(tree)({key: map_leaves(fn, tree[key], *(o[key] for o in others)) for key in sorted(tree)})
    if isinstance(tree, (tuple, list)):
        children = [map_leaves(fn, child, *(o[i] for o in others)) for i, child in enumerate(tree)]
        return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)
    return fn(tree, *others)


def map_with_path(fn: Callable[[str, Any], Any], tree: Tree, path: str = "") -> Tree:
    """Like ``map_leaves``, with the leaf's path as the first argument."""
    paths = iter([p for p, _ in items(tree, path)])
    return map_leaves(lambda leaf: fn(next(paths), leaf), tree)


def refilled(tree: Tree, values: Iterable[Any]) -> Tree:
    """The tree with ``values`` for its leaves, in their order."""
    found = iter(values)
    return map_leaves(lambda _: next(found), tree)


def nest(flat: dict[str, Any], make: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """The nested dict whose ``items`` are ``flat``."""
    root = make()
    for path, leaf in flat.items():
        *parents, name = path.split(".")
        node = root
        for key in parents:
            node = node.setdefault(key, make())
        node[name] = leaf
    return root


def opened(tree: Tree) -> Tree:
    """The tree with the dataclasses among its leaves, such as distributions, opened into dicts of their fields."""

    def open_leaf(leaf: Any) -> Any:
        if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
            return leaf
        return opened({field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)})

    return map_leaves(open_leaf, tree)
