"""A table against a plain model of it: insert, sample, update, remove, save, restore, in any order."""

import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scipy import stats

from starling.data import Checkpointer, Table, prioritized

from .helpers import POINT, points

SELECTORS = ["uniform", "prioritized", "fifo", "lifo", "max_heap", "min_heap"]
PRIORITIES = st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.0, 7.5])


class Model:
    """Items in the order of insertion: key → [number, priority, times drawn]."""

    def __init__(self, capacity, sampler, remover, max_times):
        self.capacity, self.sampler, self.remover, self.max_times = capacity, sampler, remover, max_times
        self.items = {}
        self.largest = 1.0

    def candidates(self, rule):
        """The keys that a rule may pick."""
        keys = list(self.items)
        if rule == "fifo":
            return keys[:1]
        if rule == "lifo":
            return keys[-1:]
        if rule in ("max_heap", "min_heap"):
            best = (max if rule == "max_heap" else min)(self.items[k][1] for k in keys)
            return [k for k in keys if self.items[k][1] == best]
        return keys

    def chance(self, key):
        if self.sampler == "uniform":
            return 1 / len(self.items)
        if self.sampler == "prioritized":
            weights = {k: (item[1] + 1e-6) ** 0.6 for k, item in self.items.items()}
            total = sum(weights.values())
            return weights[key] / total
        return 1.0


class TableMachine(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(1, 12),
        sampler=st.sampled_from(SELECTORS),
        remover=st.sampled_from(SELECTORS),
        max_times=st.sampled_from([0, 0, 1, 3]),
        seed=st.integers(0, 100),
    )
    def build(self, capacity, sampler, remover, max_times, seed):
        self.options = {"sampler": sampler, "remover": remover, "max_times_sampled": max_times, "seed": seed}
        self.table = Table(POINT, capacity, **self.options)
        self.model = Model(capacity, sampler, remover, max_times)
        self.number = 0
        self.old_keys = []
        self.saved = None

    def present(self):
        keys = self.table.index.keys
        return {int(k) for k in keys if k >= 0}

    @rule(priority=st.none() | PRIORITIES)
    def insert_one(self, priority):
        model, before = self.model, self.present()
        allowed = model.candidates(model.remover) if len(model.items) == model.capacity else []
        key = int(self.table.insert(points(self.number), None if priority is None else [priority])[0])
        gone = before - self.present()
        assert len(gone) == (1 if allowed else 0)
        for k in gone:
            assert k in allowed
            del model.items[k]
            self.old_keys.append(k)
        assert key not in before
        model.items[key] = [self.number, model.largest if priority is None else priority, 0]
        if priority is not None:
            model.largest = max(model.largest, priority)
        self.number += 1

    @rule(count=st.integers(2, 5), priority=PRIORITIES)
    def insert_several(self, count, priority):
        if count > self.model.capacity or self.model.remover != "fifo":
            return
        keys = self.table.insert(points(*range(self.number, self.number + count)), [priority] * count).tolist()
        model = self.model
        for i, key in enumerate(keys):
            if len(model.items) == model.capacity:
                oldest = next(iter(model.items))
                del model.items[oldest]
                self.old_keys.append(oldest)
            model.items[key] = [self.number + i, priority, 0]
        model.largest = max(model.largest, priority)
        self.number += count

    @rule(count=st.integers(1, 6))
    def sample(self, count):
        model = self.model
        left = sum(model.max_times - item[2] for item in model.items.values()) if model.max_times else 10**9
        if not model.items or left < count:
            assert not self.table.can_sample(count)
            return
        drawn = self.table.sample(count)
        for i in range(count):
            key = int(drawn.keys[i])
            if model.max_times or model.sampler in ("fifo", "lifo", "max_heap", "min_heap"):
                assert key in model.candidates(model.sampler)
            assert drawn.data["n"][i] == model.items[key][0]
            np.testing.assert_array_equal(drawn.data["x"][i], [model.items[key][0], -model.items[key][0]])
            assert drawn.probabilities[i] == pytest.approx(model.chance(key))
            model.items[key][2] += 1
            if model.items[key][2] == model.max_times:
                del model.items[key]
                self.old_keys.append(key)
        assert 0 < drawn.weights.max() <= 1

    @rule(data=st.data(), count=st.integers(1, 4))
    def update(self, data, count):
        known = list(self.model.items) + self.old_keys[-3:]
        if not known:
            return
        keys = data.draw(st.lists(st.sampled_from(known), min_size=count, max_size=count))
        priorities = data.draw(st.lists(PRIORITIES, min_size=count, max_size=count))
        found = self.table.update_priorities(np.array(keys, np.int64), priorities)
        assert found == sum(k in self.model.items for k in keys)
        for key, priority in zip(keys, priorities):
            if key in self.model.items:
                self.model.items[key][1] = priority
        self.model.largest = max(self.model.largest, *priorities)

    @rule(data=st.data())
    def remove(self, data):
        known = list(self.model.items) + self.old_keys[-3:]
        if not known:
            return
        key = data.draw(st.sampled_from(known))
        assert self.table.remove([key]) == (key in self.model.items)
        if self.model.items.pop(key, None):
            self.old_keys.append(key)

    @rule()
    def save_and_load_from_disk(self):
        other = Table(POINT, self.model.capacity, **{**self.options, "seed": 999})
        with tempfile.TemporaryDirectory() as directory:
            Checkpointer(directory, {"t": self.table}, block_bytes=60).save()
            Checkpointer(directory, {"t": other}).load()
        self.table = other

    @rule()
    def move_into_another_table(self):
        other = Table(POINT, self.model.capacity, **{**self.options, "seed": 999})
        other.restore(self.table.state())
        self.table = other

    @invariant()
    def the_same_items_are_present(self):
        assert self.present() == set(self.model.items)
        assert len(self.table) == len(self.model.items)
        index = self.table.index
        for key, (_, priority, _) in self.model.items.items():
            assert index.priorities[index.slot_of(key)] == priority


TableMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTableAgainstItsModel = TableMachine.TestCase


def chi_square_of_prioritized_draws(draws, batch):
    rng = np.random.default_rng(0)
    priorities = rng.gamma(0.5, size=300)
    priorities[::10] = 0.0
    table = Table(POINT, 300, sampler=prioritized(0.7, epsilon=0), seed=4)
    keys = table.insert(points(*range(300)), np.ones(300))
    table.update_priorities(keys, priorities)
    counts = np.zeros(300)
    for _ in range(draws // batch):
        counts += np.bincount(table.sample(batch).data["n"], minlength=300)
    expected = priorities**0.7 / (priorities**0.7).sum() * counts.sum()
    assert (counts[priorities == 0] == 0).all()
    some = expected > 5
    return float(((counts[some] - expected[some]) ** 2 / expected[some]).sum()), int(some.sum()) - 1


@pytest.mark.parametrize("batch", [1, 100])
def test_prioritized_draws_match_their_chances(batch):
    statistic, freedom = chi_square_of_prioritized_draws(50_000 * batch // (1 + batch // 2), batch)
    assert stats.chi2.sf(statistic, freedom) > 1e-4


@pytest.mark.slow
def test_prioritized_draws_match_their_chances_over_a_million_draws():
    statistic, freedom = chi_square_of_prioritized_draws(1_000_000, 1)  # one by one: draws are independent
    assert 1e-4 < stats.chi2.sf(statistic, freedom) < 1 - 1e-4
