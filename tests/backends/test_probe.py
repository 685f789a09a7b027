from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from starling.backends import ops
from starling.backends.probe import Probe, counting_flops, probe, sources_of, spend_flops


def made(shape, *sources):
    return probe(np.zeros(shape, np.float32), frozenset(sources))


def test_a_result_comes_from_the_sources_of_all_its_arguments():
    x, y = made((2, 3), "x"), made((3, 4), "y")
    xp = ops(x)
    assert sources_of(x @ y) == {"x", "y"}
    assert sources_of(xp.concat([x, xp.tanh(x + 1)], axis=0)) == {"x"}
    assert sources_of({"a": x * 2, "b": [y]}) == {"x", "y"}
    assert sources_of(xp.where(x > 0, x, made((), "z"))) == {"x", "z"}
    assert sources_of((x[0], y.shape)) == {"x"}


def test_control_flow_keeps_the_sources():
    x, carry = made((5, 2), "x"), made((2,), "carry")
    xp = ops(x)
    final, ys = xp.scan(lambda c, now: (c + now, c * 2), carry, x)
    assert sources_of(final) == sources_of(ys) == {"x", "carry"}
    assert type(ys) is Probe
    assert ys.shape == (5, 2)
    assert sources_of(xp.cond(x[0, 0] > 0, lambda a: a, lambda a: -a, x)) == {"x"}


def test_a_gradient_is_not_taken_but_the_function_is_run():
    x, w = made((4, 2), "x"), made((2,), "w")
    (loss, aux), gradients = ops(x).value_and_grad(lambda p, x: (ops(x).sum(x @ p["w"]), x))({"w": w}, x)
    assert sources_of(loss) == {"x", "w"}
    assert aux.shape == (4, 2)
    assert gradients["w"].shape == (2,)


@dataclass
class Policy:
    logits: Any
    mask: Any = None


def test_the_fields_of_a_dataclass_are_probed():
    policy = probe(Policy(np.zeros(3), None), frozenset(["head"]))
    assert sources_of([policy]) == {"head"}
    assert policy.mask is None


def test_a_product_costs_two_operations_per_multiply_add():
    with counting_flops() as flops:
        made((5, 3)) @ made((3, 4))
    assert flops == [2 * 5 * 3 * 4]


def test_a_convolution_costs_two_operations_per_multiply_add():
    x = made((2, 9, 9, 3))
    with counting_flops() as flops:
        found = ops(x).conv2d(x, made((3, 3, 3, 8)), stride=2)
    assert found.shape == (2, 4, 4, 8)
    assert flops == [2 * (2 * 4 * 4 * 8) * (3 * 3 * 3)]


def test_elementwise_operations_cost_one_each_and_moving_nothing():
    x = made((5, 3))
    xp = ops(x)
    with counting_flops() as flops:
        xp.tanh(x)
        x + 1
    assert flops == [30]
    with counting_flops() as flops:
        xp.reshape(x, (15,))
        xp.concat([x, x], axis=0)
        xp.stack([x, x])
        xp.take(x, xp.asarray([0, 1]), axis=0)
    assert flops == [0]


def test_counts_nest():
    x = made((4,))
    with counting_flops() as outer:
        x + 1
        with counting_flops() as inner:
            x * 2
            spend_flops(100)
    assert inner == [104]
    assert outer == [108]


def test_nothing_is_counted_outside_a_block():
    spend_flops(5)
    with counting_flops() as flops:
        pass
    assert flops == [0]


def test_numpy_reductions_past_the_namespace_are_refused():
    with pytest.raises(TypeError):
        np.add.reduce(made((4,)))
