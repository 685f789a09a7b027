import dataclasses

import pytest

from starling.components.base import Component, api, apis, children, expectations, replace_children
from starling.components.networks.layers import MLP, Linear


class Base(Component):
    size: int

    @api
    def first(self, p, x):
        return x

    @api(x="B {size}")
    def second(self, p, x):
        return x

    def helper(self, x):
        return x


class Derived(Base):
    parts: tuple[Component, ...] = ()
    named: dict[str, Component] = dataclasses.field(default_factory=dict)
    single: Component | None = None
    number: int = 3

    @api
    def third(self, p, x):
        return x

    @api
    def first(self, p, x):
        return -x


FULL = Derived(4, (Linear(1), 7, Linear(2)), {"left": MLP((3,))}, Linear(5))


def test_a_component_is_a_frozen_dataclass():
    assert Linear(3).size == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Linear(3).size = 4


def test_apis_are_listed_in_the_order_of_their_definition_inherited_first():
    assert apis(Derived) == apis(FULL) == ["first", "second", "third"]


def test_an_api_is_the_plain_method_it_was():
    assert FULL.first(None, 2) == -2
    assert Base(1).first(None, 2) == 2


def test_expectations_take_in_the_fields():
    assert expectations(FULL, "second") == {"x": "B 4"}
    assert expectations(FULL, "third") == {}


def test_children_are_named_by_field_index_and_key():
    assert [(name, type(child).__name__) for name, child in children(FULL)] == [
        ("parts_0", "Linear"),
        ("parts_2", "Linear"),
        ("named_left", "MLP"),
        ("single", "Linear"),
    ]


def test_replacing_children_leaves_everything_else():
    changed = replace_children(FULL, lambda name, child: Linear(100) if name != "parts_2" else child)
    assert [part if isinstance(part, int) else part.size for part in changed.parts] == [100, 7, 2]
    assert changed.named["left"].size == changed.single.size == 100
    assert (changed.size, changed.number) == (4, 3)
    assert FULL.parts[0].size == 1
    lone = Linear(3)
    assert replace_children(lone, lambda name, child: child) is lone
