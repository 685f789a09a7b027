from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from starling.core.trees import items, leaves, map_leaves, map_with_path, nest, opened

keys = st.text("abcxyz", min_size=1, max_size=3)
trees = st.recursive(
    st.integers(),
    lambda inner: st.one_of(
        st.dictionaries(keys, inner, max_size=3),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.none(),
    ),
    max_leaves=10,
)
Pair = namedtuple("Pair", "first second")


def test_paths_join_keys_with_dots_in_sorted_order():
    tree = {"b": (1, [2, {"x": 3}]), "a": 4, "none": None}
    assert list(items(tree)) == [("a", 4), ("b.0", 1), ("b.1.0", 2), ("b.1.1.x", 3)]
    assert list(items(5)) == [("", 5)]


@given(trees)
def test_mapping_the_identity_changes_nothing(tree):
    assert map_leaves(lambda leaf: leaf, tree) == tree


@given(trees)
def test_mapping_keeps_the_paths_and_changes_the_leaves(tree):
    doubled = map_leaves(lambda leaf: 2 * leaf, tree)
    assert list(items(doubled)) == [(path, 2 * leaf) for path, leaf in items(tree)]
    assert leaves(map_with_path(lambda path, leaf: (path, leaf)[0], tree)) == [path for path, _ in items(tree)]


def test_trees_of_the_same_shape_are_mapped_together():
    assert map_leaves(lambda a, b: a - b, {"x": 5, "y": (1,)}, {"y": (4,), "x": 2}) == {"x": 3, "y": (-3,)}


def test_named_tuples_keep_their_type():
    mapped = map_leaves(lambda leaf: leaf + 1, Pair(1, {"a": 2}))
    assert mapped == Pair(2, {"a": 3})
    assert type(mapped) is Pair


@given(st.dictionaries(keys, st.dictionaries(keys, st.integers(), min_size=1), max_size=3))
def test_nesting_undoes_flattening(tree):
    assert nest(dict(items(tree))) == tree


@dataclass
class Policy:
    logits: Any
    mask: Any = None


def test_dataclasses_open_into_their_fields_at_any_depth():
    tree = {"policy": Policy(np.zeros(2), Policy(1)), "value": 3}
    assert [path for path, _ in items(opened(tree))] == ["policy.logits", "policy.mask.logits", "value"]
    assert opened(Policy) is Policy
