"""What every algorithm that follows gradients shares: means over rows, statistics, and which parameters move."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from starling.algorithms import ALGORITHMS
from starling.components.optimisers import SGD
from starling.components.schedules import Constant
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.trees import items, leaves, map_leaves
from tests.algorithms.cases import FITS, Case, batch_for, built, root

GRADIENT = [algo for algo in ALGORITHMS if algo != "es"]
NORMALISED = dict.fromkeys(GRADIENT, ("normalise_observations", "normalise_rewards"))
NORMALISED |= dict.fromkeys(("bc", "r2d2", "reinforce"), ("normalise_observations",))
SEEN = {"normaliser": "obs", "return_scale": "discounted_return"}  # statistics, and what of a batch they are of
IN_TIME = ("a2c", "impala", "reinforce")  # losses of [T, B]


def begun(algo, **settings):
    """A small instance, its state, a batch and the draws to learn from it."""
    short = {"length": 2, "burn_in": 1, "overlap": 1, "memory_size": 2} if algo == "r2d2" else {}
    case = Case(algo, "vector", FITS[algo][0], tuple({**short, **settings}.items()))
    return root(case), root(case).init(built(case, "numpy").initial), *batch_for(case)


def same(one, other):
    return all(np.array_equal(x, y) for x, y in zip(leaves(one), leaves(other), strict=True))


def share(algo, prepared, draws, rows):
    """Some of the rows that a gradient step learns from; PPO's draws are row numbers themselves."""
    if algo == "ppo":
        return prepared, draws[rows]
    axis = {name: int(algo in IN_TIME and name != "next_obs") for name in prepared}
    part = {name: map_leaves(lambda x, a=axis[name]: np.moveaxis(np.moveaxis(x, a, 0)[rows], 0, a), tree)
            for name, tree in prepared.items()}  # fmt: skip
    return part, map_leaves(lambda x: x[rows], draws)


@pytest.mark.parametrize("algo", GRADIENT)
def test_the_gradients_of_shares_weighted_by_their_rows_average_to_those_of_the_whole(algo):
    algorithm, state, batch, draws = begun(algo, **{"standardise": False} if algo == "ppo" else {})
    prepared, draws = algorithm.prepare(state, batch), algorithm.steps_of(draws)[0]
    parts = [share(algo, prepared, draws, rows) for rows in (slice(0, None, 2), slice(1, None, 2))]
    (one, _, n), (other, _, m) = (algorithm.gradients(state, *part) for part in parts)
    whole, _, both = algorithm.gradients(state, prepared, draws)
    assert n + m == both
    for (path, gradient), (_, a), (_, b) in zip(items(whole), items(one), items(other), strict=True):
        np.testing.assert_allclose((n * a + m * b) / (n + m), gradient, rtol=1e-3, atol=1e-6, err_msg=path)


def normalised(algo):
    return begun(algo, **dict.fromkeys(NORMALISED[algo], True))


def counted(x, mask):
    """The rows that are steps; a sequence's observations without the one behind its last step."""
    return x if mask is None else x[: mask.shape[0], : mask.shape[1]][mask.astype(bool)]


@pytest.mark.parametrize("algo", GRADIENT)
def test_an_update_learns_with_the_statistics_that_acted_and_then_adds_its_batch_to_them(algo):
    algorithm, state, batch, draws = normalised(algo)
    mirrored = {**batch, **{name: -2 * batch[name] for name in SEEN.values() if name in batch}}
    acted = stepped = algorithm.absorb(state, algorithm.observe(mirrored))
    after, _ = algorithm.update(acted, batch, draws)
    prepared = algorithm.prepare(acted, batch)
    for each in algorithm.steps_of(draws):
        gradients, _, _ = algorithm.gradients(stepped, prepared, each)
        assert set(gradients) == set(state["params"]) - set(SEEN), "no gradient moves statistics"
        stepped = algorithm.apply_gradients(stepped, gradients)
    assert same(algorithm.moving(after["params"]), algorithm.moving(stepped["params"]))
    for (scope, name), _ in zip(SEEN.items(), NORMALISED[algo]):
        assert same(stepped["params"][scope], acted["params"][scope])
        rows = np.concatenate([counted(each[name], batch.get("mask")) for each in (mirrored, batch)])
        (found,) = after["params"][scope].values()
        assert found["count"] == len(rows)
        np.testing.assert_allclose(found["mean"], rows.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["m2"], len(rows) * rows.var(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algo", GRADIENT)
def test_statistics_change_what_is_observed_and_earned_and_nothing_else(algo):
    algorithm, state, batch, draws = normalised(algo)
    plain, _, _, _ = begun(algo)
    mean, deviation = np.float32([1, -1, 0.5]), np.float32([2, 0.5, 1])
    params = algorithm.moving(state["params"])
    state["params"]["normaliser"] = Params(observation=moments(mean, deviation))
    by_hand = {name: (batch[name] - mean) / deviation for name in ("obs", "next_obs") if name in batch}
    if "normalise_rewards" in NORMALISED[algo]:
        state["params"]["return_scale"] = Params(returns=moments(np.float32(3), np.float32(4)))
        by_hand["reward"] = batch["reward"] / 4

    def loss(algorithm, state, batch):
        each = algorithm.steps_of(draws)[0]
        seen = algorithm.minibatch(algorithm.prepare(state, batch), each)
        return float(algorithm.loss(state["params"], state, seen, each)[0])

    expected = loss(plain, {**state, "params": params}, {**batch, **by_hand})
    assert loss(algorithm, state, batch) == pytest.approx(expected, rel=1e-4)
    assert loss(plain, {**state, "params": params}, batch) != pytest.approx(expected, rel=1e-4)


def moments(mean, deviation):
    return Params(count=np.float32(4), mean=mean, m2=4 * np.square(deviation))


@pytest.mark.parametrize("scopes", [("torso",), ("q", "torso"), ("normaliser",)])
def test_an_optimiser_of_scopes_that_do_not_learn_is_refused_naming_those_that_do(scopes):
    algorithm, state, _, _ = begun("dqn", normalise_observations=True)
    wrong = dataclasses.replace(algorithm, optimisers={"fast": SGD(Constant(1.0), scopes=scopes)})
    with pytest.raises(ConfigError, match=rf"optimiser 'fast' is to move {scopes[-1]!r}, .* there are: q\."):
        wrong.init(state["params"])


def test_an_optimiser_of_scopes_without_parameters_is_refused():
    algorithm, state, _, _ = begun("ppo")
    wrong = dataclasses.replace(algorithm, optimisers={"eyes": SGD(Constant(1.0), scopes=("encoder",))})
    with pytest.raises(ConfigError, match=r"optimiser 'eyes' is to move 'encoder', .* there are: policy, value\."):
        wrong.init(state["params"])
