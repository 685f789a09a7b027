import jax
import numpy as np
import pytest

from starling.backends import get_backend
from starling.components.targets import Copy, Polyak
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.trees import leaves
from tests.components.building import BACKENDS, assert_same

OLD = Params(a=Params(w=np.zeros((2, 3), np.float32)), b=np.zeros(2, np.float32))
NEW = Params(a=Params(w=np.ones((2, 3), np.float32)), b=np.full(2, 4.0, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_the_target_is_replaced_when_the_period_is_over(backend, dtype):
    backend = get_backend(backend)
    update = backend.compile(lambda old, new, count: Copy(3)(old, new, count))
    for count in range(1, 8):
        found = backend.to_numpy(update(backend.from_numpy(OLD), backend.from_numpy(NEW), np.array(count, dtype)))
        assert_same(dict(NEW if count % 3 == 0 else OLD), dict(found), tolerance=0)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_nothing_is_copied_when_the_period_is_not_over(backend):
    backend = get_backend(backend)
    old, new = backend.from_numpy(OLD), backend.from_numpy(NEW)
    count = backend.from_numpy(np.array(4, np.int32))
    assert all(a is b for a, b in zip(leaves(Copy(3)(old, new, count)), leaves(old)))


def test_compiled_code_branches_instead_of_computing_both():
    text = str(jax.make_jaxpr(lambda old, new, count: Copy(3)(old, new, count))(dict(OLD), dict(NEW), 4))
    assert "cond[" in text


def test_trees_of_different_containers_fit_together():
    backend = get_backend("jax")
    update = jax.jit(lambda old, new: Copy(3)(old, new, jax.numpy.asarray(3)))
    found = update({"a": {"w": OLD["a"]["w"]}, "b": OLD["b"]}, backend.from_numpy(NEW))
    assert type(found) is dict
    np.testing.assert_array_equal(found["b"], NEW["b"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_polyak_moves_a_share_of_the_way(backend):
    backend = get_backend(backend)
    update = backend.compile(Polyak(0.25))
    found = backend.to_numpy(update(backend.from_numpy(OLD), backend.from_numpy(NEW), np.array(7, np.int32)))
    np.testing.assert_allclose(found["a"]["w"], 0.25)
    np.testing.assert_allclose(found["b"], 1.0)
    assert found["b"].dtype == np.float32


def test_a_share_of_one_is_a_copy_and_of_none_stays():
    assert_same(NEW, Polyak(1.0)(OLD, NEW, 1), tolerance=0)
    assert_same(OLD, Polyak(0.0)(OLD, NEW, 1), tolerance=0)


@pytest.mark.parametrize("follow", [Copy(3), Polyak(0.25)])
def test_who_holds_no_parameters_keeps_an_empty_copy(follow):
    assert follow(Params(), Params(), np.array(3, np.int32)) == {}


def test_periods_and_shares_out_of_range_are_refused():
    with pytest.raises(ConfigError, match=r"period=0; a target is copied every 1, 2, … gradient steps"):
        Copy(0)
    for tau in (-0.1, 1.5):
        with pytest.raises(ConfigError, match=rf"tau={tau}; it is a share, from 0 to 1"):
            Polyak(tau)
