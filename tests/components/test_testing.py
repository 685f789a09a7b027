import numpy as np
import pytest

from starling.backends import available, ops
from starling.components.base import Component, api
from starling.components.networks.initialisers import constant, ones
from starling.components.networks.layers import MLP, Linear
from starling.components.testing import ComponentTest
from starling.core.errors import ConfigError, SpaceError, UnknownNameError
from starling.core.spaces import Bool, Dict, Float, Int, Tuple
from starling.maths.distributions import Categorical
from tests.components.graphs import INPUTS, OBS, agent


class Scaled(Component):
    """An example with several APIs: two with parameters, one without, one that reads another's result."""

    inner: Linear = Linear(2)

    @api
    def features(self, p, x):
        return self.inner(p.inner, x) * p.get("scale", (), constant(2.0))

    @api
    def score(self, p, features, bonus=None):
        total = ops(features).sum(features, axis=-1)
        return total if bonus is None else total + bonus

    @api
    def double(self, x):
        return 2 * x

    @api
    def gap(self, p, target, x):
        return self.features(p, x) - self.features(target, x)

    @api
    def unknown(self, p, something):
        return something


@pytest.fixture(params=available())
def test(request):
    return ComponentTest(Scaled(), {"x": OBS}, backend=request.param)


def test_a_call_gives_numpy_arrays(test):
    x = np.ones((3, 4), np.float32)
    found = test.call("features", x)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, 2 * (x @ test.params.inner.w + test.params.inner.b), rtol=1e-6)
    np.testing.assert_allclose(test.call("features", x=x), found)


def test_lists_take_the_dtype_of_their_space(test):
    assert test.call("features", [[1, 2, 3, 4]]).shape == (1, 2)
    assert test.call("double", [[1, 2, 3, 4]]).tolist() == [[2, 4, 6, 8]]


def test_defaults_may_be_left_out_or_given(test):
    features = np.float32([[1, 2], [3, 4]])
    assert test.call("score", features).tolist() == [3, 7]
    assert test.call("score", features, bonus=np.float32([10, 20])).tolist() == [13, 27]


def test_the_target_is_a_copy_of_the_parameters(test):
    np.testing.assert_array_equal(test.call("gap", np.ones((3, 4))), np.zeros((3, 2)))


def test_a_check_compares_leaf_by_leaf(test):
    features = np.float32([[1, 2], [3, 4]])
    test.check("score", [features], [3.0, 7.0])
    test.check("score", [features], [3.1, 7.0], rtol=0.1)
    with pytest.raises(AssertionError, match="score"):
        test.check("score", [features], [3.1, 7.0])
    with pytest.raises(AssertionError, match=r"score has shape \(2,\); \(1, 2\) was expected"):
        test.check("score", [features], [[3.0, 7.0]])
    with pytest.raises(AssertionError, match=r"score is array.*; \{'a': \[3.0, 7.0\]\} was expected"):
        test.check("score", [features], {"a": [3.0, 7.0]})


def test_parameters_can_be_read_written_and_replaced(test):
    x = np.ones((1, 4), np.float32)
    test.params["scale"] = np.float32(0.0)
    assert test.call("features", x).tolist() == [[0, 0]]
    test.params = {"inner": {"w": np.ones((4, 2)), "b": [1, 2]}, "scale": 1}
    assert test.call("features", x).tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"inner": {"w": np.ones((4, 3)), "b": [1, 2]}, "scale": 1},
            r"'inner.w': shape \[4, 3\] arrived, shape \[4, 2\]",
        ),
        ({"inner": {"w": np.ones((4, 2))}, "scale": 1}, r"'inner.b': nothing arrived, shape \[2\] was expected"),
        ({"inner": {"w": np.ones((4, 2)), "b": [1, 2]}, "scale": 1, "x": 1}, "'x': .* arrived, nothing was expected"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(params, message):
    with pytest.raises(SpaceError, match=message):
        ComponentTest(Scaled(), {"x": OBS}).params = params


def test_samples_have_the_sizes_asked_for(test):
    assert test.sample("features", batch=6).shape == (6, 2)
    assert test.sample("score", batch=3).shape == (3,)  # features were made by the API of that name


def test_samples_differ_and_repeat_with_the_seed():
    first, second = (ComponentTest(MLP((3,)), {"x": OBS}, seed=4) for _ in range(2))
    one = first.sample("__call__")
    np.testing.assert_array_equal(one, second.sample("__call__"))
    assert not np.array_equal(one, first.sample("__call__"))
    assert not np.array_equal(one, ComponentTest(MLP((3,)), {"x": OBS}, seed=5).sample("__call__"))


class Trees(Component):
    @api
    def run(self, p, tree, pair):
        xp = ops(pair[0])
        return {"image": xp.mean(xp.astype(tree["image"], xp.float32)), "chosen": pair[1], "on": tree["on"]}

    @api
    def policy(self, p, pair):
        return Categorical(pair[0] * p.get("w", (3,), ones))


@pytest.mark.parametrize("backend", available())
def test_trees_go_in_and_out(backend):
    tree = Dict(image=Int((2, 2), 0, 256, "uint8"), on=Bool()).ranked(batch=True, time=True)
    pair = Tuple(Float((3,)), Int((), high=3)).ranked(batch=True)
    test = ComponentTest(Trees(), {"tree": tree, "pair": pair}, backend)
    found = test.sample("run", batch=2, time=3)
    assert (found["chosen"].shape, found["on"].shape, found["on"].dtype) == ((2,), (3, 2), np.bool_)
    found = test.call("run", {"image": np.full((1, 2, 2, 2), 7), "on": [[True, False]]}, ([[1, 2, 3]] * 2, [0, 2]))
    assert found["image"] == 7
    assert found["chosen"].tolist() == [0, 2]


def test_a_distribution_comes_out_as_its_arrays():
    test = ComponentTest(Trees(), {"pair": Tuple(Float((3,)), Int((), high=3)).ranked(batch=True)})
    assert test.call("policy", ([[1, 2, 3]], [0]))["logits"].tolist() == [[1, 2, 3]]


def test_what_cannot_be_called_is_named():
    test = ComponentTest(Scaled(), {"x": OBS})
    with pytest.raises(UnknownNameError, match=r"unknown API 'feature' in Scaled. Did you mean 'features'"):
        test.call("feature", 1)
    with pytest.raises(ConfigError, match=r"Scaled.unknown takes 'something', which is not among the spaces: x"):
        test.sample("unknown")
    with pytest.raises(ConfigError, match=r"Scaled.features was called without 'x'"):
        test.call("features")
    with pytest.raises(ConfigError, match="got 1 too many"):
        test.call("features", np.ones((1, 4)), 3)


def test_spaces_of_no_argument_are_refused():
    with pytest.raises(UnknownNameError, match="unknown argument 'X' in the spaces of Scaled"):
        ComponentTest(Scaled(), {"X": OBS})


def test_spaces_that_do_not_fit_are_refused():
    with pytest.raises(SpaceError, match=r"component '\(root\)' \(MLP\), API '__call__', argument 'x'"):
        ComponentTest(MLP((3,)), {"x": Float()})


def test_a_whole_agent_is_a_component_too():
    found = ComponentTest(agent(), INPUTS, "numpy").sample("loss", batch=9)
    assert found[1]["error"].shape == (9,)
