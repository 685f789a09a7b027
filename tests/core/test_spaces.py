import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling.core.errors import SpaceError
from starling.core.spaces import Bool, Dict, Float, Int, Leaf, Tuple, space_of

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def floats(draw):
    low = draw(st.one_of(st.just(-np.inf), st.floats(-100, 100)))
    high = draw(st.one_of(st.just(np.inf), st.floats(max(low, -100.0), 200)))
    return Float(draw(shapes), low, high)


@st.composite
def ints(draw):
    low = draw(st.integers(-1000, 1000))
    return Int(draw(shapes), low, low + draw(st.integers(1, 1000)), draw(st.sampled_from(["int32", "int64"])))


leaf_spaces = st.one_of(floats(), ints(), shapes.map(Bool))
spaces = st.recursive(
    leaf_spaces,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(Dict),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Tuple(*parts)),
    ),
    max_leaves=5,
)


def pick_ranks(space, batch, time):
    return space.ranked(batch=batch, time=time), (7,) * time + (5,) * batch


@settings(max_examples=60, deadline=None)
@given(spaces, st.booleans(), st.booleans(), seeds)
def test_a_sample_is_in_its_space(space, batch, time, seed):
    space, sizes = pick_ranks(space, batch, time)
    assert space.mismatch(space.sample(np.random.default_rng(seed), sizes)) is None


@settings(max_examples=60, deadline=None)
@given(spaces, st.booleans(), st.booleans())
def test_zeros_are_in_their_space(space, batch, time):
    space, sizes = pick_ranks(space, batch, time)
    assert space.mismatch(space.zeros(sizes)) is None
    assert space.mismatch(space.zeros_with({"time": 7, "batch": 5})) is None


@settings(max_examples=40, deadline=None)
@given(spaces, seeds)
def test_the_space_of_a_value_contains_it_and_has_its_paths(space, seed):
    value = space.sample(np.random.default_rng(seed))
    assert space_of(value).contains(value)
    assert list(space_of(value).flatten()) == list(space.flatten())


@given(spaces)
def test_a_space_equals_itself_and_not_itself_with_a_batch(space):
    assert space == space.ranked()
    assert hash(space) == hash(space.ranked())
    assert space != space.ranked(batch=True)


@pytest.mark.parametrize(
    ("space", "value", "reason"),
    [
        (Float((2,)), np.zeros(2, np.float64), "dtype float64 arrived, float32 was expected"),
        (Float((2,)), np.zeros(3, np.float32), "shape [3] arrived, [2] was expected"),
        (Float((2,)).ranked(batch=True), np.zeros(2, np.float32), "shape [2] arrived, [B, 2] was expected"),
        (
            Float((2,)).ranked(batch=True, time=True),
            np.zeros((4, 2), np.float32),
            "shape [4, 2] arrived, [T, B, 2] was expected",
        ),
        (Float((2,), 0, 1), np.array([0.5, 2], np.float32), "values 0.5 … 2 arrived, 0 … 1 was expected"),
        (Int((), high=3), np.int32(3), "values 3 … 3 arrived, 0 … 2 was expected"),
        (Float((3,)), np.array([0, np.nan, np.inf], np.float32), "not every number is finite (2 of 3 are not)"),
        (Dict(a=Bool()), [True], "list arrived, a dict was expected"),
        (Dict(a=Bool()), {"b": np.bool_(True)}, "keys ['b'] arrived, ['a'] was expected"),
        (Dict(a=Tuple(Bool())), {"a": (np.int32(1),)}, "at 'a.0': dtype int32 arrived, bool was expected"),
        (Tuple(Bool(), Bool()), (np.bool_(True),), "arrived, 2 values were expected"),
    ],
)
def test_a_mismatch_says_what_arrived_and_what_was_expected(space, value, reason):
    assert reason in space.mismatch(value)
    with pytest.raises(SpaceError, match="the observation does not fit its space"):
        space.check(value, "the observation")


def test_zeros_move_inside_the_bounds():
    np.testing.assert_array_equal(Float((2,), 3.0, 5.0).zeros(), np.full(2, 3, np.float32))
    np.testing.assert_array_equal(Int((2,), -9, -3).zeros(), np.full(2, -4, np.int32))


def test_bounds_may_differ_by_element():
    space = Int((3,), 0, np.array([2, 5, 9]))
    drawn = space.ranked(batch=True).sample(np.random.default_rng(0), (500,))
    np.testing.assert_array_equal(drawn.max(axis=0), [1, 4, 8])
    assert space.categories == 9
    assert space != Int((3,), 0, 9)


def test_bounds_that_float32_cannot_hold_are_reached_all_the_same():
    low, high = np.array([0.7, -1.1]), np.array([0.7, 0.1])  # 0.7 in float32 is below 0.7, 0.1 above 0.1
    space = Float((2,), low, high)
    assert space.mismatch(space.zeros()) is None
    assert space.mismatch(high.astype(np.float32)) is None
    assert space.mismatch(space.ranked(batch=True).sample(np.random.default_rng(0), (100,))[0]) is None
    assert not space.contains(np.array([0.7001, 0], np.float32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float((-1,)), "every dimension must be at least 0"),
        (lambda: Float((), 2.0, 1.0), "low=2.0 is above high=1.0"),
        (lambda: Float((2,), np.zeros(3)), "it must be a number or have the shape"),
        (lambda: Float((2,)).ranked(batch=True).zeros(), "has 1 leading ranks; 0 sizes were given"),
    ],
)
def test_what_makes_no_space_is_refused(make, message):
    with pytest.raises(SpaceError, match=message):
        make()


def test_spaces_print_their_ranks_and_shapes():
    image = Int((84, 84, 4), 0, 256, "uint8").ranked(batch=True, time=True)
    assert str(Dict(image=image, on=Bool())) == "{image: uint8[T·B·84×84×4], on: bool}"
    assert str(Tuple(Float((3,)))) == "(float32[3])"
    assert str(Float((1,)).ranked(batch=True)) == "float32[B·1]"
    assert str(Float().ranked(batch=True)) == "float32[B]"


def test_bytes_do_not_count_the_ranks():
    assert Dict(a=Float((3,)), b=Int((2,), dtype="int64")).ranked(batch=True).nbytes == 3 * 4 + 2 * 8


def test_dicts_are_in_the_order_of_their_keys():
    assert list(Dict(z=Bool(), a=Dict(c=Bool(), b=Bool())).flatten()) == ["a.b", "a.c", "z"]
    assert Dict(z=Bool(), a=Float()) == Dict(a=Float(), z=Bool())
    assert isinstance(Dict(a=Float())["a"], Leaf)
