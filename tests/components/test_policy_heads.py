import numpy as np
import pytest

from starling.components.networks.heads import (
    BernoulliHead,
    CategoricalHead,
    DeterministicHead,
    GaussianHead,
    MultiDiscreteHead,
    TanhGaussianHead,
    policy_head_for,
    squashed_head_for,
)
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.spaces import Bool, Dict, Float, Int
from starling.maths.distributions import Bernoulli, Categorical, MultiDiscrete
from starling.maths.gaussians import Gaussian, TanhGaussian
from tests.components.building import assert_same, everywhere, initial

rng = np.random.default_rng(13)
FEATURES = {"features": Float((6,)).ranked(batch=True)}


def normals(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def widened(head):
    """Parameters large enough that the policies differ from one row to the next."""
    return Params({name: normals(*leaf.shape) for name, leaf in initial(head, **FEATURES).items()})


def sampled(head, p, features, noise, *mask):
    policy = head.distribution(p, features, *mask)
    action, log_prob = policy.sample_with_log_prob(noise)
    return {"action": action, "log_prob": log_prob, "mode": policy.mode(), "entropy": policy.entropy()}


HEADS = [
    (CategoricalHead(4), (), "uniform", Categorical),
    (MultiDiscreteHead((2, 3)), (2,), "uniform", MultiDiscrete),
    (BernoulliHead(3), (3,), "uniform", Bernoulli),
    (GaussianHead(3), (3,), "normal", Gaussian),
    (GaussianHead(3, state_dependent=True), (3,), "normal", Gaussian),
    (TanhGaussianHead(3), (3,), "normal", TanhGaussian),
]


@pytest.mark.parametrize(("head", "shape", "kind", "distribution"), HEADS)
def test_every_policy_samples_the_same_on_every_backend(head, shape, kind, distribution):
    lead = (6,)
    noise = rng.random((*lead, *shape)).astype(np.float32) if kind == "uniform" else normals(*lead, *shape)
    x, params = normals(*lead, 6), widened(head)
    policy = head.distribution(params, x)
    assert isinstance(policy, distribution)
    assert policy.noise_shape == (*lead, *shape)
    found = everywhere(head, FEATURES, sampled, x, noise, params=params)
    assert found["action"].shape == (*lead, *shape)
    assert found["log_prob"].shape == found["entropy"].shape == lead
    in_time = sampled(head, params, x.reshape(2, 3, 6), noise.reshape(2, 3, *shape))
    assert_same({name: leaf.reshape(2, 3, *leaf.shape[1:]) for name, leaf in found.items()}, in_time, tolerance=1e-5)


def test_a_masked_action_is_never_chosen():
    mask = np.array([[True, False, True, False]] * 50)
    x, noise = normals(50, 6), rng.random(50).astype(np.float32)
    spaces = {**FEATURES, "mask": Bool((4,)).ranked(batch=True)}
    head = CategoricalHead(4)
    found = everywhere(head, spaces, sampled, x, noise, mask, params=widened(head), gradient=False)
    assert set(found["action"]) == {0, 2}
    assert set(found["mode"]) <= {0, 2}


def test_a_mask_of_several_choices_lies_side_by_side():
    mask = np.array([[False, True, True, False, False]] * 20)  # of (2, 3): the second, then the first
    head = MultiDiscreteHead((2, 3))
    found = everywhere(
        head, FEATURES, sampled, normals(20, 6), rng.random((20, 2)).astype(np.float32), mask, params=widened(head),
        gradient=False,
    )  # fmt: skip
    np.testing.assert_array_equal(found["action"], [[1, 0]] * 20)


def test_a_masked_switch_stays_off_and_costs_nothing():
    head, x = BernoulliHead(2), normals(20, 6)
    params, noise = widened(head), np.full((20, 2), 1e-9, np.float32)  # every free switch goes on
    mask = np.array([[True, False]] * 20)
    found = everywhere(head, FEATURES, sampled, x, noise, mask, params=params, gradient=False)
    np.testing.assert_array_equal(found["action"], [[1, 0]] * 20)
    logits = x @ params["w"][:, 0] + params["b"][0]
    np.testing.assert_allclose(found["log_prob"], -np.log1p(np.exp(-logits)), rtol=1e-4, atol=1e-5)


def test_continuous_policies_refuse_a_mask():
    for head in (GaussianHead(2), TanhGaussianHead(2)):
        with pytest.raises(SpaceError, match="only discrete actions can be masked"):
            head.distribution(initial(head, **FEATURES), normals(3, 6), np.ones((3, 2), bool))


def test_policies_start_nearly_uniform():
    x = normals(8, 6)
    policy = CategoricalHead(4).distribution(initial(CategoricalHead(4), **FEATURES), x)
    np.testing.assert_allclose(np.exp(policy.log_probs()), 0.25, atol=0.02)


@pytest.mark.parametrize("state_dependent", [False, True])
def test_the_standard_deviation_starts_where_it_is_told_to(state_dependent):
    head = GaussianHead(2, log_std_init=-1.5, state_dependent=state_dependent)
    policy = head.distribution(initial(head, **FEATURES), np.zeros((3, 6), np.float32))
    np.testing.assert_allclose(np.broadcast_to(policy.log_std, (3, 2)), -1.5)
    np.testing.assert_allclose(policy.mean, 0.0)


def test_a_squashed_policy_bounds_its_log_standard_deviation():
    head = TanhGaussianHead(1, log_std_min=-2.0, log_std_max=0.5)
    big = Params(w=np.ones((6, 1)), b=np.zeros(1), w_std=100 * np.ones((6, 1)), b_std=np.zeros(1))
    policy = head.distribution(big, np.array([[1.0] * 6, [-1.0] * 6]))
    np.testing.assert_array_equal(policy.log_std, [[0.5], [-2.0]])


def test_a_deterministic_head_answers_within_bounds():
    head, x = DeterministicHead(2), 10 * normals(5, 6)
    params = widened(head)
    found = everywhere(head, FEATURES, "action", x, params=params)
    np.testing.assert_allclose(found, np.tanh(x @ params["w"] + params["b"]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("space", "kind", "field", "value"),
    [
        (Int((), 0, 5), CategoricalHead, "actions", 5),
        (Int((2,), 0, np.array([3, 4])), MultiDiscreteHead, "sizes", (3, 4)),
        (Int((2,), 0, 3), MultiDiscreteHead, "sizes", (3, 3)),
        (Bool((4,)), BernoulliHead, "size", 4),
        (Bool(), BernoulliHead, "size", 1),
        (Float((2, 3)), GaussianHead, "size", 6),
        (Float(), GaussianHead, "size", 1),
    ],
)
def test_the_head_follows_from_the_action_space(space, kind, field, value):
    head = policy_head_for(space)
    assert isinstance(head, kind)
    assert getattr(head, field) == value


def test_spaces_without_a_head_are_refused_with_what_is_supported():
    with pytest.raises(SpaceError, match="from -1 on arrived; supported are Int counting from 0"):
        policy_head_for(Int((), -1, 2))
    with pytest.raises(SpaceError, match="supported are Int"):
        policy_head_for(Dict(a=Float()))


def test_squashed_policies_need_bounds():
    assert squashed_head_for(Float((3,), -2.0, 2.0)).size == 3
    for space in (Float((3,)), Int((), 0, 3)):
        with pytest.raises(SpaceError, match="needs Float with finite low and high"):
            squashed_head_for(space)


def test_a_mask_of_another_size_is_refused_while_assembling():
    with pytest.raises(SpaceError, match=r"argument 'mask': bool\[B, 3\] arrived, \[\*, 4\] was expected"):
        initial(CategoricalHead(4), **FEATURES, mask=Bool((3,)).ranked(batch=True))
