import numpy as np
import pytest

from starling.components.networks.encoders import (
    ChannelsLast,
    DictEncoder,
    Flatten,
    TupleEncoder,
    encoder_for,
    split_mask,
)
from starling.components.networks.images import CNN, ImpalaResNet, NatureCNN
from starling.components.networks.layers import Linear, Sequential
from starling.components.networks.preprocessing import OneHot
from starling.core.errors import SpaceError
from starling.core.spaces import Bool, Dict, Float, Int, Tuple
from starling.core.trees import map_leaves
from tests.components.building import everywhere, initial

rng = np.random.default_rng(17)


def encoded(space, lead=(3,), encoder=None, gradient=False):
    batched = space.ranked(batch=True) if len(lead) == 1 else space.ranked(batch=True, time=True)
    x = batched.sample(rng, lead)
    return x, everywhere(encoder or encoder_for(space), {"x": batched}, "__call__", x, gradient=gradient)


@pytest.mark.parametrize(
    ("space", "features"),
    [
        (Float((4,)), 4),
        (Float(), 1),
        (Float((2, 3)), 6),
        (Bool((4,)), 4),
        (Int((), 0, 5), 5),
        (Int((2,), 0, 5), 10),
        (Int((128,), 0, 256, "uint8"), 128),
        (Float((10, 8, 4)), 128),
        (Bool((10, 8, 4)), 128),
        (Int((36, 40, 3), 0, 256, "uint8"), 512),
        (Int((3, 36, 40), 0, 256, "uint8"), 512),
        (Dict(a=Float((2,)), b=Int((), 0, 3)), 5),
        (Tuple(Float((2,)), Int((), 0, 3), Bool()), 6),
        (Dict(inner=Dict(a=Float((2,))), image=Float((5, 5, 1))), 130),
    ],
)
def test_every_space_has_an_encoder_for_any_leading_dimensions(space, features):
    x, found = encoded(space, (2, 3))
    assert found.shape == (2, 3, features)
    assert found.dtype == np.float32
    encoder = encoder_for(space)
    rows = map_leaves(lambda leaf: leaf[1], x)
    p = initial(encoder, x=space.ranked(batch=True))
    np.testing.assert_allclose(encoder(p, rows), found[1], rtol=1e-4, atol=1e-5)


def test_numbers_are_flattened_in_order():
    x, found = encoded(Float((2, 3)))
    np.testing.assert_array_equal(found, x.reshape(3, 6))


def test_whole_numbers_count_from_the_low_end_of_their_space():
    encoder = encoder_for(Int((2,), -1, 2))
    x = np.array([[-1, 1], [0, 0]], np.int32)
    found = everywhere(encoder, {"x": Int((2,), -1, 2).ranked(batch=True)}, "__call__", x, gradient=False)
    np.testing.assert_array_equal(found, [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0]])


def test_many_whole_numbers_become_quantities_from_zero_to_one():
    x, found = encoded(Int((128,), 0, 256, "uint8"))
    np.testing.assert_allclose(found, x / 255.0, rtol=1e-6)


def test_unbounded_whole_numbers_are_refused():
    with pytest.raises(SpaceError, match="Give the space its true bounds"):
        encoder_for(Int((2,)))


def test_entries_stand_side_by_side_by_sorted_key():
    encoder = DictEncoder({"b": Flatten(), "a": OneHot(2)})
    space = Dict(a=Int((), 0, 2), b=Float((1,)))
    x = {"a": np.array([1, 0], np.int32), "b": np.array([[5.0], [6.0]], np.float32)}
    found = everywhere(encoder, {"x": space.ranked(batch=True)}, "__call__", x, gradient=False)
    np.testing.assert_array_equal(found, [[0, 1, 5], [1, 0, 6]])


def test_the_action_mask_is_no_feature():
    space = Dict(action_mask=Bool((3,)), a=Float((2,)), b=Float((1,)))
    _, found = encoded(space)
    assert found.shape == (3, 3)
    encoder = DictEncoder({"a": Flatten(), "action_mask": Flatten()})
    _, found = encoded(Dict(a=Float((2,)), action_mask=Bool((3,))), encoder=encoder)
    assert found.shape == (3, 2)


def test_elements_of_a_tuple_keep_their_order():
    encoder = TupleEncoder((Flatten(), Flatten()))
    space = Tuple(Float((1,)), Float((1,)))
    x = (np.array([[1.0]], np.float32), np.array([[2.0]], np.float32))
    found = everywhere(encoder, {"x": space.ranked(batch=True)}, "__call__", x, gradient=False)
    np.testing.assert_array_equal(found, [[1, 2]])


def test_every_entry_has_parameters_of_its_own():
    encoder = DictEncoder({"a": Linear(2), "b": Linear(2)})
    space = Dict(a=Float((3,)), b=Float((3,)))
    assert sorted(initial(encoder, x=space.ranked(batch=True))) == ["encoders_a", "encoders_b"]
    x, found = encoded(space, encoder=encoder, gradient=True)
    p = initial(encoder, x=space.ranked(batch=True))
    np.testing.assert_allclose(found[:, 2:], x["b"] @ p["encoders_b"]["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("space", "network"),
    [
        (Int((84, 84, 4), 0, 256, "uint8"), NatureCNN),
        (Int((36, 36, 1), 0, 256, "uint8"), NatureCNN),
        (Int((35, 84, 1), 0, 256, "uint8"), CNN),
        (Float((10, 10, 7)), CNN),
        (Float((2, 3, 4)), Flatten),
        (Int((3, 3, 2), 0, 3), OneHot),
    ],
)
def test_the_network_follows_from_the_size_of_the_image(space, network):
    assert type(encoder_for(space)) is network


def test_another_image_network_can_be_asked_for():
    encoder = encoder_for(Dict(a=Float((2,)), view=Int((64, 64, 3), 0, 256, "uint8")), image=ImpalaResNet())
    assert isinstance(encoder, DictEncoder)
    assert isinstance(encoder.encoders["view"], ImpalaResNet)


def test_frames_stacked_in_front_are_moved_behind():
    encoder = encoder_for(Int((4, 84, 84), 0, 256, "uint8"))
    assert isinstance(encoder, Sequential)
    assert isinstance(encoder.layers[0], ChannelsLast)
    x, found = encoded(Float((2, 3, 4)), encoder=ChannelsLast())
    np.testing.assert_array_equal(found, x.transpose(0, 2, 3, 1))


def test_floats_up_to_255_are_scaled_as_bytes_are():
    floats, as_bytes = encoder_for(Float((8, 8, 1), 0, 255)), encoder_for(Int((8, 8, 1), 0, 256, "uint8"))
    x = rng.integers(0, 256, (3, 8, 8, 1))
    p = initial(as_bytes, x=Int((8, 8, 1), 0, 256, "uint8").ranked(batch=True))
    network = CNN(((32, 3, 1),), size=128)
    assert isinstance(floats, Sequential)
    scaled = floats.layers[0]({}, x.astype(np.float32))
    np.testing.assert_allclose(network(p, scaled), network(p, x.astype(np.uint8)), rtol=1e-5, atol=1e-6)


def test_a_mask_is_split_off_observations_and_spaces_alike():
    x, mask = np.zeros((2, 3)), np.ones((2, 4), bool)
    left, found = split_mask({"observation": x, "action_mask": mask})
    assert left is x
    assert found is mask
    rest, found = split_mask({"a": x, "b": x, "action_mask": mask})
    assert sorted(rest) == ["a", "b"]
    assert found is mask
    assert split_mask(x)[0] is x
    assert split_mask(x)[1] is None
    assert split_mask({"a": x})[1] is None
    space = Dict(observation=Float((3,)), action_mask=Bool((4,)))
    assert split_mask(space) == (Float((3,)), Bool((4,)))
    assert split_mask(Float((3,)))[1] is None


def test_the_encoder_of_a_masked_space_takes_what_the_split_leaves():
    space = Dict(observation=Float((3,)), action_mask=Bool((4,))).ranked(batch=True)
    obs = space.sample(rng, (2,))
    left, _ = split_mask(obs)
    encoder = encoder_for(space)
    inputs = {"x": Float((3,)).ranked(batch=True)}
    np.testing.assert_array_equal(everywhere(encoder, inputs, "__call__", left, gradient=False), obs["observation"])


@pytest.mark.parametrize("space", [Dict(action_mask=Bool((2,))), Tuple()])
def test_nothing_to_encode_is_refused(space):
    with pytest.raises(SpaceError, match="needs at least one"):
        encoder_for(space)


def test_an_image_of_truth_values_is_an_image_of_zeros_and_ones():
    """As MinAtar has them; not bytes, which would be divided by 255."""
    space = Bool((10, 10, 4))
    encoder = encoder_for(space)
    assert isinstance(encoder, CNN)
    x, found = encoded(space)
    p = initial(encoder, x=space.ranked(batch=True))
    np.testing.assert_allclose(found, encoder(p, x.astype(np.float32)), rtol=1e-4, atol=1e-5)
