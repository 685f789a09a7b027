"""What a plan is: the experience that an algorithm learns from, and when.

A plan owns four things. The *item*: what is kept of the steps. The *accumulator*, which makes items of steps, where
the policy acts. The *feed*, which makes batches of items, where the algorithm learns. The *cadence*: when updates fall
due. Roles, runs and agents call these and never ask which plan they have:

    accumulator = plan.accumulator(spaces, envs)
    feed, cadence = plan.feed(spaces, chunks, seed), plan.cadence(total_steps)
    while not done:
        while not accumulator.full:
            accumulator.add(obs, acted, step, bootstrap)
        feed.add([accumulator.take()])
        for round in cadence.due(steps, feed.ready):
            for batch in feed.batches(round):
                ...

Items store facts: the reward as the environment gave it, ``terminated``, ``truncated``, and apart from the reward what
a cut is bootstrapped from. Between accumulator and feed lie processes or nothing: what travels is a *chunk*, a tree of
NumPy arrays whose largest layout ``blank`` shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Space
from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import Step
from starling.experience.cadence import Cadence, Round

__all__ = ["Accumulator", "Acted", "Batch", "Feed", "Perturbable", "Plan", "StepSpaces", "WholeFeed", "equal_share"]


@dataclass(frozen=True)
class StepSpaces:
    """What one step of one environment consists of, as the algorithm sees it."""

    obs: Space
    action: Space
    extras: Dict  # what the choice has beside the action
    memory: Dict  # what acting carries from step to step


class Acted(NamedTuple):
    """What was done at a step."""

    action: Any  # [B, …]
    extras: dict[str, Any]  # [B, …]
    memory: Tree  # before the step, [B, …]
    version: int  # of the weights that acted


class Perturbable(ABC):
    """A policy whose weights an accumulator may move between chunks, as evaluations of perturbed parameters do."""

    @abstractmethod
    def perturb(self, change: Callable[[np.ndarray], np.ndarray] | None) -> None:
        """Act with ``change`` of the weights, as one vector, from now on; None: with the weights themselves."""


class Accumulator(ABC):
    """Makes chunks of the steps of some environments."""

    bootstraps: ClassVar[bool] = False  # whether it asks for the value of the observation where an episode was cut
    restarts: ClassVar[bool] = False  # whether every chunk begins with new episodes

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether the chunk holds as much as it can."""

    def begin(self, policy: Perturbable, rng: np.random.Generator) -> None:  # noqa: B027
        """Before a chunk's first step."""

    @abstractmethod
    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        """Take one step of every environment. ``bootstrap`` [B] has the values of ``step.final_obs`` where they are
        asked for and an episode was cut."""

    @abstractmethod
    def take(self) -> Tree:
        """The chunk, and begin another; its arrays are never written to again."""

    def oldest(self, first: int) -> int:
        """The version of the oldest weights that acted in the chunk that was taken last, where not those of its
        ``first`` step."""
        return first

    @abstractmethod
    def blank(self) -> Tree:
        """Zeros in the layout of the largest chunk; a chunk's arrays may be shorter along their first axis."""

    def state(self) -> Tree:
        """What is left of a chunk that was taken."""
        return {}

    def restore(self, state: Tree) -> None:  # noqa: B027
        """Go on from ``state()``."""


class Batch(NamedTuple):
    """What one update, or several in a row, learn from."""

    data: Tree  # as ``Plan.batch_space`` says; with a further first axis where there are several
    updates: int  # how many: 1 without that axis
    versions: np.ndarray | None = None  # of the weights that acted, where items carry them
    keys: Any = None  # of the items drawn, for their priorities

    def each(self) -> Iterator[Tree]:
        """What each update learns from."""
        if self.updates == 1:
            yield self.data
            return
        for i in range(self.updates):
            yield map_leaves(lambda x, i=i: x[i], self.data)


class Feed(ABC):
    """Makes batches of the chunks that arrive.

    ``batches`` hands out memory that is used again: ``lent`` is called with what was computed from it, and the feed
    waits for that before it writes there.
    """

    chunks: int  # that make a round
    whole: ClassVar[bool] = False  # whether a batch consists of just these chunks

    @abstractmethod
    def add(self, chunks: list[Tree]) -> None:
        """Take in what actors sent."""

    @property
    def ready(self) -> bool:
        """Whether there is something to learn from."""
        return True

    @abstractmethod
    def batches(self, round: Round) -> Iterator[Batch]:
        """The batches of a round of updates."""

    def lent(self, batch: Batch, wait: Callable[[], None]) -> None:  # noqa: B027
        """``wait`` returns when the batch's memory may be written to again."""

    def learned(self, batch: Batch, priorities: np.ndarray) -> None:  # noqa: B027
        """What an update found of each row of its batch; called where the plan prioritizes."""

    def state(self) -> Tree:
        return {}

    def restore(self, state: Tree) -> None:  # noqa: B027
        """Go on from ``state()``."""


class WholeFeed(Feed):
    """A batch is the chunks of a round, joined, and learned from once."""

    whole: ClassVar[bool] = True

    def __init__(self, chunks: int, join: Callable[[list[Tree]], Tree]) -> None:
        self.chunks, self._join = chunks, join
        self._batch: Tree = None

    def add(self, chunks: list[Tree]) -> None:
        self._batch = self._join(chunks)

    def batches(self, round: Round) -> Iterator[Batch]:
        yield Batch(self._batch, 1)


class Plan(ABC):
    """See the top of this file. Plans are frozen values."""

    envs: int  # environments that a batch comes from, or that are stepped together
    acts: ClassVar[bool] = True  # whether experience is made by acting
    replays: ClassVar[bool] = False  # whether experience is learned from again and again, however old
    evaluates: ClassVar[bool] = False  # whether experience is the returns of perturbed parameters

    @property
    def prioritizes(self) -> bool:
        """Whether what an update finds of each row decides how soon it is drawn again."""
        return False

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Rows that an update learns from."""

    @abstractmethod
    def batch_space(self, spaces: StepSpaces) -> Dict:
        """The space of a batch, with its ranks."""

    @abstractmethod
    def shared(self, learners: int) -> Plan:
        """The plan of one of several learners, which has its part of each batch."""

    def enough(self, steps: int) -> bool:
        """Whether so many steps of the run are enough for the first update."""
        return True

    def buffered(self, learners: int, buffers: int) -> Plan:
        """The plan of one of several buffers, from which learners draw their parts of each batch."""
        raise TypeError(f"{type(self).__name__} keeps nothing to draw from")

    def chunks(self, actors: int) -> int:
        """Chunks that a batch is made of where so many actors send them; a multiple of their number."""
        return actors

    def envs_per_actor(self, chunks: int) -> int:
        """Environments of an actor where ``chunks`` chunks, or actors, make up for ``envs``."""
        return max(1, self.envs // chunks)

    def boundary(self, steps: int, workers: int = 1) -> int | None:
        """Where the next updates fall due after so many steps of the run: nobody who waits for them acts past it."""
        return None

    @abstractmethod
    def cadence(self, total: int, workers: int = 1) -> Cadence:
        """When updates fall due in a run of ``total`` steps, for one of ``workers`` that each learn from their own
        steps; what they count are estimates of the run's: their own steps times their number."""

    @abstractmethod
    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> Accumulator:
        """Makes chunks of ``envs`` environments, of at most ``chunk`` steps of each where the plan leaves that open.

        ``priorities`` says of new items how much they have to teach, where actors do that.
        """

    def asynchronous_accumulator(
        self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None
    ) -> Accumulator:
        """The same where rows do not wait for each other: one that is not valid has made no step, and goes on where
        it was. ``Acted.extras`` has the ``version`` of each row's weights."""
        return self.accumulator(spaces, envs, chunk, priorities)

    @abstractmethod
    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> Feed:
        """Makes batches for one learner, numbered ``index``; ``chunks`` chunks arrive for each round."""

    def reserves(self, spaces: StepSpaces) -> dict[str, int]:
        """Bytes that its feed takes, by purpose."""
        found = self.batch_space(spaces).flatten().values()
        timed = any(leaf.time for leaf in found)  # a leaf without time is there once for many rows
        return {"batch": self.batch_rows * sum(leaf.nbytes for leaf in found if leaf.time == timed)}


def equal_share(name: str, whole: int, among: int, of: str) -> int:
    """What each has where ``whole`` of a setting is shared ``among`` so many; refuses what leaves a remainder."""
    if whole % among:
        raise ConfigError(
            f"{name}={whole} cannot be shared equally by {of}; use a multiple, such as {among * -(-whole // among)}."
        )
    return whole // among
