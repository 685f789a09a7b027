"""The simulator: the same seed gives the same events; faults lose nothing and end in no deadlock."""

from __future__ import annotations

from typing import ClassVar

import pytest

from starling.core.effects import Latest, Publish, Put, Take
from starling.core.errors import ConfigError, UnknownNameError
from starling.core.lanes import MemoryLane
from starling.executors import DeadlockError, inline
from starling.executors.simulated import Simulation
from starling.executors.simulated_faults import SimulatedFaults
from starling.formations import Edge, Formation, Roles
from tests.executors.programs import Watcher, program_of


class Counting:
    """A formation of actors that send numbers and a learner that counts them; nothing but effects."""

    directory = None
    simulation: ClassVar[dict] = {}

    def __init__(self, actors=4, wanted=60, queue=2, publish_every=1):
        self.formation = Formation(
            "counting",
            (Roles("learner", 1), Roles("actor", actors)),
            (
                Edge("experience", "queue", "actor", "learner", queue, pinned=True, counted=True),
                Edge("weights", "broadcast", "learner", "actor", pinned=True),
            ),
            ends="learner",
        )
        self.wanted, self.publish_every, self.seen = wanted, publish_every, []

    def role(self, role, start):
        return self._learner() if role.kind == "learner" else self._actor(role.index, start.sent)

    def _actor(self, index, sent):
        while True:
            yield Latest("weights")
            yield Put("experience", (index, sent))
            sent += 1

    def _learner(self):
        yield Publish("weights", 0, 0)
        while len(self.seen) < self.wanted:
            self.seen.append((yield Take(("experience",))).item)
            if len(self.seen) % self.publish_every == 0:
                yield Publish("weights", 0, len(self.seen))
        return len(self.seen)


ROUGH = {"spread": 0.8, "jitter": 1.5, "loss": 0.3, "crashes": 0.05, "freezes": 0.02, "mortal": ("actor",)}


@pytest.mark.parametrize("seed", range(20))
def test_no_message_of_a_crashing_actor_is_lost_or_doubled(seed):
    program = Counting()
    simulation = Simulation(program, Watcher(), SimulatedFaults(seed=seed, **ROUGH))
    assert list(simulation.run().values()) == [60]
    for actor in range(4):
        numbers = [number for who, number in program.seen if who == actor]
        assert numbers == list(range(len(numbers)))


def test_rough_runs_are_rough():
    simulations = [Simulation(Counting(), Watcher(), SimulatedFaults(seed=seed, **ROUGH)) for seed in range(20)]
    for simulation in simulations:
        simulation.run()
    assert sum(simulation.crashes for simulation in simulations) > 20
    assert sum(simulation.freezes for simulation in simulations) > 5
    assert sum(lane.doubled for simulation in simulations for lane in simulation.storage.lanes.values()) > 20


def test_the_same_seed_gives_the_same_events_and_another_one_others():
    def log(seed):
        simulation = Simulation(Counting(), Watcher(), SimulatedFaults(seed=seed, **ROUGH))
        simulation.run()
        return simulation.log, simulation.events

    assert log(3) == log(3)
    assert log(3) != log(4)


def test_a_thousand_actors_fit_into_one_process():
    program = Counting(actors=1000, wanted=1500, publish_every=10)
    simulation = Simulation(program, Watcher(), SimulatedFaults(seed=0))
    simulation.run()
    assert len({who for who, _ in program.seen}) == 1000


SURVIVORS = {
    ("impala", "actor_learner"): ("actor", "learner"),
    ("dqn", "apex"): ("actor", "buffer", "learner"),
    ("impala", "central_inference"): ("actor", "inference", "learner"),
    ("a2c", "sharded_ps"): ("server", "worker"),
    ("a2c", "sync"): ("actor", "learner"),
    ("a2c", "allreduce"): ("actor", "learner"),
}


@pytest.mark.parametrize(
    ("algo", "formation", "mortal"), [(*pair, role) for pair, roles in SURVIVORS.items() for role in roles]
)
def test_a_run_survives_the_loss_of_any_role(algo, formation, mortal):
    rough = {"seed": 1, "crashes": 0.3, "loss": 0.1, "mortal": (mortal,), "restart": 0.5}
    program = program_of(algo, formation, steps=600, checkpoint_every=100, backend="torch", simulation=rough)
    simulation = Simulation(program, Watcher(), SimulatedFaults.of(program.simulation))
    assert simulation.run()
    assert simulation.crashes > 0


def test_roles_that_wait_for_each_other_are_named():
    class Stuck(Counting):
        def _learner(self):
            yield Take(("experience",))

    for run in (
        lambda: Simulation(Stuck(), Watcher(), SimulatedFaults()).run(),
        lambda: inline.run(Stuck(), Watcher()),
    ):
        with pytest.raises(DeadlockError, match=r"learner-0 waits for 'experience'; actor-0 waits for value 1 of"):
            run()


def test_what_arrives_twice_or_late_is_taken_once_and_in_order():
    travelling = []
    lane = MemoryLane(depth=4, keeps=True, carry=travelling.append)
    assert [lane.put(item) for item in "abc"] == [True] * 3
    first, second, _ = travelling
    second()
    assert not lane.filled()
    first()
    first()
    assert lane.filled() == 2
    assert [lane.take(False), lane.take(False)] == ["a", "b"]
    second()
    assert lane.doubled == 2
    assert not lane.filled()
    lane.rewind(1)
    assert lane.take(False) == "b"


def test_faults_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"simulation.loss=1.5; a chance below 1"):
        SimulatedFaults.of({"loss": 1.5})
    with pytest.raises(ConfigError, match=r"simulation.latency=-1"):
        SimulatedFaults.of({"latency": -1})
    with pytest.raises(UnknownNameError, match=r"Did you mean .crashes."):
        SimulatedFaults.of({"crash": 1})


@pytest.mark.slow
def test_a_thousand_seeds_repeat_their_events_and_lose_and_double_nothing():
    for seed in range(1_000):
        logs = []
        for _ in range(2):
            program = Counting()
            simulation = Simulation(program, Watcher(), SimulatedFaults(seed=seed, **ROUGH))
            simulation.run()
            logs.append((simulation.log, simulation.events))
            for actor in range(4):
                numbers = [number for who, number in program.seen if who == actor]
                assert numbers == list(range(len(numbers))), seed
        assert logs[0] == logs[1], seed


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "formation"), SURVIVORS)
def test_many_seeds_of_faults_in_every_role_end_in_no_deadlock(algo, formation):
    """A thousand, over the six formations."""
    for seed in range(167):
        rough = {"seed": seed, "crashes": 0.1, "freezes": 0.05, "loss": 0.2, "spread": 0.8, "restart": 0.5}
        program = program_of(algo, formation, steps=200, checkpoint_every=50, backend="torch", simulation=rough)
        watcher = Watcher()
        assert Simulation(program, watcher, SimulatedFaults.of(program.simulation)).run()
        told = [values for _, steps, values in watcher.reports if steps >= 0]
        assert all(values["missing_chunks"] == values["doubled_chunks"] == 0 for values in told), seed
