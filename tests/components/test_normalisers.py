"""Statistics that no gradient moves: what counts in them, what they change, and what they leave as it is."""

import numpy as np
import pytest

from starling.backends import get_backend, ops
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.core.params import Params
from starling.core.spaces import Bool, Dict, Float, Int
from starling.core.trees import items
from tests.components.building import BACKENDS, assert_same, everywhere, initial

rng = np.random.default_rng(23)
VECTOR = Float((3,))
X = {"obs": VECTOR.ranked(batch=True)}
R = {"reward": Float().ranked(batch=True)}
EVERYTHING = Dict(
    action_mask=Bool((2,)),
    camera=Float((4, 4, 3), 0.0, 1.0),
    count=Int((), 0, 9),
    hand=Dict(angle=Float(), at=Float((2,))),
    pixels=Int((4, 4, 1), 0, 256, "uint8"),
)

PLAIN = ("action_mask", "camera", "count", "pixels")


def f32(values):
    return np.asarray(values, np.float32)


def seen(normaliser, spaces, *batches):
    """The statistics after these batches, each of them a tuple of what ``moments`` takes."""
    p = initial(normaliser, **spaces)
    for batch in batches:
        p = normaliser.merged(p, normaliser.moments(*batch))
    return p


def test_the_statistics_of_a_batch_by_hand():
    found = ObservationNormaliser(Float((2,))).moments(f32([[1, 10], [3, 10], [5, 40]]))
    # Means 3 and 20; squared distances 4 + 0 + 4 and 100 + 100 + 400.
    assert found["observation"]["count"] == 3
    assert found["observation"]["mean"].tolist() == [3, 20]
    assert found["observation"]["m2"].tolist() == [8, 600]


def test_observations_are_centred_and_divided_by_the_deviation_by_hand():
    normaliser = ObservationNormaliser(Float((2,)))
    spaces = {"obs": Float((2,)).ranked(batch=True)}
    p = seen(normaliser, spaces, (f32([[1, 0], [5, 0], [1, 8], [5, 8]]),))  # means 3 and 4, deviations 2 and 4
    found = everywhere(normaliser, spaces, "__call__", f32([[3, 4], [7, -4]]), params=p, gradient=False)
    np.testing.assert_allclose(found, [[0, 0], [2, -2]], rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_merged_statistics_are_those_of_all_rows_at_once(backend):
    backend = get_backend(backend)
    normaliser = ObservationNormaliser(VECTOR)
    batches = [(5.0 + 3.0 * rng.standard_normal((n, 3))).astype(np.float32) for n in (1, 7, 64, 2)]
    batches.append(rng.standard_normal((4, 5, 3)).astype(np.float32))  # time and batch
    p = backend.from_numpy(initial(normaliser, **X))
    observe = backend.compile(lambda p, x: normaliser.merged(p, normaliser.moments(x)))
    for batch in batches:
        p = observe(p, backend.from_numpy(batch))
    found = backend.to_numpy(p)["observation"]
    rows = np.concatenate([batch.reshape(-1, 3) for batch in batches])
    assert found["count"] == len(rows)
    np.testing.assert_allclose(found["mean"], rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["m2"] / found["count"], rows.var(0), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_the_mask_leaves_out_do_not_count(backend):
    backend = get_backend(backend)
    normaliser = ObservationNormaliser(Float((2,)))
    x = f32([[[1, 10], [1e6, 1e6]], [[3, 10], [5, 40]]])  # [T, B, 2]
    found = backend.compile(normaliser.moments)(*backend.from_numpy((x, f32([[1, 0], [1, 1]]))))
    assert_same(normaliser.moments(f32([[1, 10], [3, 10], [5, 40]])), backend.to_numpy(found), tolerance=1e-6)


def test_a_batch_of_which_no_row_counts_changes_nothing():
    normaliser = ObservationNormaliser(VECTOR)
    x = rng.standard_normal((6, 3)).astype(np.float32)
    before = seen(normaliser, X, (x,))
    after = seen(normaliser, X, (x,), (x + 100, np.zeros(6, np.float32)))
    assert_same(before, after, tolerance=0)


@pytest.mark.parametrize("lead", [(6,), (2, 6)])
def test_observations_are_normalised_and_clipped(lead):
    rows = (10.0 + 4.0 * rng.standard_normal((200, 3))).astype(np.float32)
    normaliser = ObservationNormaliser(VECTOR, clip=5.0)
    x = (10.0 + 4.0 * rng.standard_normal((*lead, 3))).astype(np.float32)
    x[..., 0, 0] = 1e6
    found = everywhere(normaliser, X, "__call__", x, params=seen(normaliser, X, (rows,)), gradient=False)
    np.testing.assert_allclose(found, np.clip((x - rows.mean(0)) / rows.std(0), -5, 5), rtol=1e-4, atol=1e-5)
    assert found[..., 0, 0].max() == 5.0


def test_before_the_first_observation_nothing_changes():
    x = rng.standard_normal((4, 3)).astype(np.float32)
    found = everywhere(ObservationNormaliser(VECTOR), X, "__call__", x, gradient=False)
    np.testing.assert_allclose(found, x, rtol=1e-6)


def test_statistics_are_per_element_of_an_observation_of_any_rank():
    space = Float((2, 3))
    x = rng.standard_normal((9, 2, 3)).astype(np.float32)
    p = seen(ObservationNormaliser(space), {"obs": space.ranked(batch=True)}, (x,))
    np.testing.assert_allclose(p["observation"]["mean"], x.mean(0), rtol=1e-4, atol=1e-6)


def test_the_vectors_of_a_dict_are_normalised_each_by_its_own_statistics():
    normaliser = ObservationNormaliser(EVERYTHING)
    assert set(normaliser.normalised) == {"hand.angle", "hand.at"}
    spaces = {"obs": EVERYTHING.ranked(batch=True)}
    obs = EVERYTHING.ranked(batch=True).zeros_with({"batch": 2})
    obs["hand"] = {"angle": f32([1, 3]), "at": f32([[0, 10], [8, 30]])}  # means 2, 4, 20; deviations 1, 4, 10
    p = seen(normaliser, spaces, (obs,))
    assert {path for path, _ in items(p)} == {
        f"hand.{name}.{number}" for name in ("angle", "at") for number in ("count", "mean", "m2")
    }
    found = everywhere(normaliser, spaces, "__call__", obs, params=p, gradient=False)
    np.testing.assert_allclose(found["hand"]["angle"], [-1, 1], rtol=1e-6)
    np.testing.assert_allclose(found["hand"]["at"], [[-1, -1], [1, 1]], rtol=1e-6)


def test_entries_whose_paths_look_alike_have_statistics_of_their_own():
    space = Dict(a=Dict(b=Float()), a_b=Float())
    normaliser, spaces = ObservationNormaliser(space), {"obs": space.ranked(batch=True)}
    obs = {"a": {"b": f32([1, 3])}, "a_b": f32([10, 50])}  # means 2 and 30; deviations 1 and 20
    found = everywhere(normaliser, spaces, "__call__", obs, params=seen(normaliser, spaces, (obs,)), gradient=False)
    np.testing.assert_allclose(found["a"]["b"], [-1, 1], rtol=1e-6)
    np.testing.assert_allclose(found["a_b"], [-1, 1], rtol=1e-6)


def test_images_whole_numbers_and_masks_of_actions_pass_as_they_are():
    normaliser = ObservationNormaliser(EVERYTHING)
    obs = {name: EVERYTHING.ranked(batch=True)[name].sample(rng, (5,)) for name in PLAIN}
    obs["hand"] = {"angle": f32([0, 1, 2, 3, 4]), "at": rng.standard_normal((5, 2)).astype(np.float32)}
    found = normaliser(seen(normaliser, {"obs": EVERYTHING.ranked(batch=True)}, (obs,)), obs)
    for name in PLAIN:
        assert found[name] is obs[name]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_statistics_stand_apart_from_the_gradients_of_what_comes_after(backend):
    backend = get_backend(backend)
    normaliser = ObservationNormaliser(VECTOR)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    still = backend.from_numpy(seen(normaliser, X, (x,)))

    def loss(p, x):
        y = p["scale"] * normaliser(still, x)
        return ops(y).sum(y * y), None

    params = Params(scale=np.array(2.0, np.float32))
    _, gradient = backend.ops.value_and_grad(loss)(backend.from_numpy(params), backend.from_numpy(x))
    # y² = scale² · x̂², and Σ x̂² is one for each of the 24 numbers.
    np.testing.assert_allclose(backend.to_numpy(gradient)["scale"], 2 * 2 * 24, rtol=1e-3)


def test_rewards_are_divided_by_the_deviation_of_the_returns_and_not_centred():
    scale = ReturnScale()
    p = seen(scale, R, (f32([10, 14, 10, 14]),))  # mean 12, deviation 2
    assert (p["returns"]["count"], p["returns"]["mean"]) == (4, 12)
    found = everywhere(scale, R, "__call__", f32([4, 0, -1, 1e6, -1e6]), params=p, gradient=False)
    np.testing.assert_allclose(found, [2, 0, -0.5, 10, -10], rtol=1e-6)


def test_rewards_stay_as_they_are_before_the_first_return():
    found = everywhere(ReturnScale(), R, "__call__", f32([0.5, -2]), gradient=False)
    np.testing.assert_allclose(found, [0.5, -2])


def test_returns_of_several_batches_and_without_masked_steps_are_one_batch():
    returns = rng.standard_normal((6, 4)).astype(np.float32)
    mask = (rng.random((6, 4)) < 0.7).astype(np.float32)
    halves = seen(ReturnScale(), R, (returns[:2], mask[:2]), (returns[2:], mask[2:]))
    assert_same(seen(ReturnScale(), R, (returns[mask == 1],)), halves, tolerance=1e-5)
