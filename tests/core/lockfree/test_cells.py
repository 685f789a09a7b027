"""Cells and groups, one at a time."""

from __future__ import annotations

from starling.core.lockfree.cells import SharedCell, SharedGroup
from tests.core.lockfree.messages import item, number_of


def test_a_value_that_the_reader_knows_comes_without_its_content():
    cell = SharedCell("weights", item(0))
    cell.publish(item(7), version=3)
    newest = cell.newest(known=0)
    assert (number_of(newest.value), newest.version, newest.number) == (7, 3, 1)
    assert cell.newest(known=1) == (None, 3, 1)
    cell.publish(item(8), version=4)
    assert number_of(cell.newest(known=1).value) == 8


def test_a_collective_may_have_more_than_32_members():
    group = SharedGroup("gradients", item(0), 40)
    for member in range(40):
        assert not group.complete(0)
        group.offer(member, 0, item(member), weight=member / 2)
    assert group.complete(0)
    assert [(number_of(value), weight) for value, weight in group.read(0)] == [(i, i / 2) for i in range(40)]
