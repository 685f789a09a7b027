"""Collectors: a policy in its environments, and the experience that an algorithm's data plan asks for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Replay, Rollouts
from starling.core.effects import Effect
from starling.core.random import generator_state, restore_generator, stream
from starling.core.spaces import Dict
from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import Envs, Episode, Step
from starling.roles.policy import AnyPolicy, Policy

if TYPE_CHECKING:
    from starling.data import Table

__all__ = ["Collector", "RolloutCollector", "TransitionCollector", "signature_for", "without_waiting"]


def signature_for(algorithm: Algorithm) -> Dict:
    """What a table of the algorithm's transitions holds."""
    from starling.data import transition_signature  # needs numba, which actors of rollouts do without

    extras = dict(algorithm.extras.spaces)
    return transition_signature(algorithm.observation_space, algorithm.action_space, False, **extras)


def without_waiting(code: Generator[Effect, Any, Any]) -> Any:
    """The result of code that needs no effect carried out."""
    try:
        effect = next(code)
    except StopIteration as stop:
        return stop.value
    raise TypeError(f"{effect!r:.80} cannot be carried out here: nobody else runs")


class Collector:
    """What every collector has: environments, the observations they wait at, noise, and a count of steps.

    ``explore()`` says how much to explore now.
    """

    def __init__(self, policy: AnyPolicy, envs: Envs, seed: int, actor: int = 0) -> None:
        self.policy, self.envs = policy, envs
        self.algorithm: Algorithm = policy.algorithm  # type: ignore[assignment]
        self.obs: Tree = None
        self.steps = 0  # real transitions so far
        self.episodes: list[Episode] = []  # finished since they were last taken
        self.explore: Callable[[], float] = lambda: self.algorithm.exploration(self.steps)
        self._rng = stream(seed, "actor", actor, "noise")

    def take_episodes(self) -> list[Episode]:
        """The episodes that finished since the last call."""
        taken, self.episodes = self.episodes, []
        return taken

    def state(self) -> Tree:
        """Where collecting is: environments, generator, counters."""
        self._begin()
        return {"steps": self.steps, "rng": generator_state(self._rng), "envs": self.envs.state()}

    def restore(self, state: Tree) -> None:
        self.steps = int(state["steps"])
        restore_generator(self._rng, state["rng"])
        self.obs = self.envs.restore(state["envs"])

    def _begin(self) -> None:
        if self.obs is None:
            self.obs = self.envs.reset()


class RolloutCollector(Collector):
    """Rollouts: [T, B] arrays of every environment's next T steps."""

    def collect(self) -> Tree:
        """The next batch; see ``Rollouts``."""
        return without_waiting(self.gather())

    def gather(self) -> Generator[Effect, Any, Tree]:
        """The next batch, from a policy that may be elsewhere."""
        plan = self.algorithm.plan
        assert isinstance(plan, Rollouts)
        self._begin()
        length, count = plan.length, self.envs.count
        noise = self.algorithm.act_noise(self._rng, (length, count))
        explore = self.explore()
        act: Any = self.policy.act
        step_envs, to_env, here = self.envs.step, self.algorithm.to_env, self.policy.here
        observations, choices, steps = [], [], []
        obs, bonus = self.obs, {}
        for t in range(length):
            chosen = act(obs, noise[t], explore) if here else (yield from act(obs, noise[t], explore))
            step = step_envs(to_env(chosen["action"]))
            observations.append(obs)
            choices.append(chosen)
            steps.append(step)
            if step.final_obs is not None and step.truncated.any():
                bonus[t] = yield from self._value_of_cut(step, plan.gamma)
            if step.episodes:
                self.episodes += step.episodes
            obs = step.obs
        self.obs = obs
        return self._batch(observations, choices, steps, bonus, plan.gamma)

    def _value_of_cut(self, step: Step, gamma: float) -> Generator[Effect, Any, np.ndarray]:
        """γ · v(final observation) where an episode was cut short, 0 elsewhere."""
        cut = step.truncated & ~step.terminated
        values: Any = self.policy.values(step.final_obs)
        if not self.policy.here:
            values = yield from values
        return np.where(cut, gamma * values, 0.0).astype(np.float32)

    def _batch(
        self, observations: list[Tree], choices: list[Any], steps: list[Step], bonus: dict[int, Any], gamma: float
    ) -> Tree:
        reward = np.array([step.reward for step in steps])  # [T, B]
        for t, value in bonus.items():
            reward[t] += value
        ended = np.array([step.terminated for step in steps]) | np.array([step.truncated for step in steps])
        valid = np.array([step.valid for step in steps])
        self.steps += int(valid.sum())
        return {
            "obs": _stack(observations),
            **_stack(choices),
            "reward": reward,
            "discount": np.where(ended | ~valid, np.float32(0), np.float32(gamma)),
            "mask": valid.astype(np.float32),
            "next_obs": self.obs,
        }


def _stack(trees: list[Tree]) -> Tree:
    first = trees[0]
    if isinstance(first, np.ndarray):
        return np.array(trees)  # faster than np.stack for many small arrays
    return map_leaves(lambda *leaves: np.array(leaves), first, *trees[1:])


class TransitionCollector(Collector):
    """Single steps of every environment, handed to an adder."""

    policy: Policy

    def __init__(self, policy: Policy, envs: Envs, seed: int, table: Table, actor: int = 0) -> None:
        super().__init__(policy, envs, seed, actor)
        plan = self.algorithm.plan
        assert isinstance(plan, Replay)
        from starling.data import NStepAdder

        self.adder = NStepAdder(table, num_envs=envs.count, n=plan.n_step, gamma=plan.gamma)
        self._noise, self._held = np.zeros(0, np.float32), 0  # held for so many more steps
        self._valid, self._rows = np.zeros(0, bool), 0  # the rows that counted in the last step, and how many

    def collect(self) -> None:
        """One step of every environment."""
        if self.obs is None:
            self._begin()
        if self._held == 0:
            self._noise, self._held = self.algorithm.act_noise(self._rng, (self.envs.count,)), self.algorithm.hold_noise
        self._held -= 1
        chosen = self.policy.act(self.obs, self._noise, self.explore())
        action = chosen.pop("action")
        step = self.envs.step(self.algorithm.to_env(action))
        self.adder.add(
            self.obs, action, chosen, step.reward, step.terminated, step.truncated, step.obs, step.final_obs, step.valid
        )
        if step.valid is not self._valid:  # environments without invalid rows always give the same array
            self._valid, self._rows = step.valid, int(step.valid.sum())
        self.steps += self._rows
        if step.episodes:
            self.episodes += step.episodes
        self.obs = step.obs

    def state(self) -> Tree:
        return {**super().state(), "adder": self.adder.state(), "noise": self._noise, "held": self._held}

    def restore(self, state: Tree) -> None:
        super().restore(state)
        self.adder.restore(state["adder"])
        self._noise, self._held = state["noise"], int(state["held"])
