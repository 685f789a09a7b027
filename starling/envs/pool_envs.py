"""Pools of processes for environments in Python, which step one row at a time and keep a processor busy.

``PoolEnvs`` gives exactly the steps of ``GymEnvs``, whatever the number of workers: rows stay in order, and a row's
episodes have the seeds of its number. A saved state has the same form too, so a run may go on with another number. Who
asks is one of the workers: waking from sleep takes as long as a short step, and who works need not wake.
``AsyncPoolEnvs`` serves the rows that are ready first, so that nobody waits for the slowest.
"""

from __future__ import annotations

import itertools
import json
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, EnvError
from starling.core.importing import import_path
from starling.core.random import stream
from starling.core.registry import carried
from starling.core.trees import Tree, map_leaves
from starling.envs.actions import ActionCodec
from starling.envs.channels import RESET, RESTORE, STATE, STEP, Packet, pack, unpack
from starling.envs.constructing import single_constructor
from starling.envs.failures import require_count
from starling.envs.gym_envs import GymEnvs
from starling.envs.held_rows import HeldRows
from starling.envs.protocol import AsyncEnvs, Envs, Step
from starling.envs.shared_rows import SharedRows
from starling.envs.step_note import StepNote
from starling.envs.together import Together
from starling.envs.tolerant import Tolerance
from starling.envs.worker_processes import WorkerProcesses

__all__ = ["AsyncPoolEnvs", "PoolEnvs", "Recipe", "require_importable", "shares_of"]


class Recipe:
    """What workers make, and what it looks like: ``example`` has one such environment, and is closed here."""

    def __init__(
        self,
        env: str | Callable[..., Any],
        kwargs: dict[str, Any],
        tolerance: Tolerance | None,
        extras: Sequence[str],
        example: GymEnvs,
    ) -> None:
        self.name = example.name
        self.construct, self.extras = single_constructor(env, tolerance, **kwargs), extras
        self.observation_space, self.action_space = example.observation_space, example.action_space
        self.extras_space, self.source_spaces = example.extras_space, example.source_spaces
        self.setup: dict[str, Any] = {
            "name": self.name,
            "env": env if isinstance(env, str) else None,
            "path": None if isinstance(env, str) else import_path(env),
            "parts": carried(["environment"]),
            "kwargs": kwargs,
            "tolerance": None if tolerance is None else tolerance.settings(),
            "extras": list(extras),
            "spaces": [repr(space) for space in self.source_spaces],
        }
        example.close()

    def start(self, count: int, shares: list[slice], seed: int, apart: bool) -> tuple[SharedRows, WorkerProcesses]:
        """The rows of all, and a process for each of the ``shares`` of them."""
        rows = SharedRows(self.observation_space, self.action_space, self.extras_space, count)
        layout = {"segment": rows.segment.descriptor, "fields": repr(rows.fields)}
        try:
            setup = {**self.setup, **layout, "seed": seed, "apart": apart}
            return rows, WorkerProcesses(self.name, count, shares, setup, rows.notes)
        except BaseException:
            rows.segment.close()
            raise


def shares_of(count: int, workers: int) -> list[slice]:
    """The rows of each of so many workers, contiguous; there are no more workers than rows."""
    workers = min(workers, count)
    bounds = [count * worker // workers for worker in range(workers + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def require_importable(env: str | Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse what cannot be made in another process, before anything is made."""
    if isinstance(env, str):
        carried(["environment"])
    else:
        import_path(env)
    for key, value in kwargs.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise ConfigError(
                f"{key}={value!r:.60} cannot be sent to a worker: {error}. Give numbers, strings, and lists or dicts "
                "of them, or write a function without arguments that makes the environment, and give that."
            ) from error


class PoolEnvs(Envs):
    """``count`` environments, in order, stepped by ``workers`` processes at once, of which this is the first."""

    def __init__(self, recipe: Recipe, count: int, workers: int, seed: int, step_note: Path | None = None) -> None:
        """``step_note`` is a file for what this process does of it; what the others do they note in shared memory."""
        self.count, self.name = count, recipe.name
        self.observation_space, self.extras_space = recipe.observation_space, recipe.extras_space
        self._actions = ActionCodec(recipe.source_spaces[1], count)
        self.action_space = self._actions.space
        self.exact_resume = True
        own, *others = self._shares = shares_of(count, workers)
        self._rows, self._workers = recipe.start(count, others, seed, apart=False)
        envs = GymEnvs(recipe.construct, own.stop, seed, recipe.name, recipe.extras)
        if step_note is not None:
            envs.keep(StepNote.in_file(step_note, own.stop))
        self._own = Together(envs, self._rows, own)

    def reset(self) -> Tree:
        self._do(RESET)
        return self._rows.first()

    def step(self, action: Any) -> Step:
        self._rows.write_actions(slice(None), self._actions.accept(action))
        self._do(STEP)
        return self._rows.read()

    def _do(self, code: int, contents: Sequence[Any] | None = None) -> list[Any]:
        """What each of the workers answers, this one while the others are at work."""
        first, *rest = contents or (None,)
        self._workers.ask_all(code, [pack(content) for content in rest] or None)
        return [self._own.do(code, first), *(unpack(answer) if answer else None for answer in self._workers.answers())]

    def state(self) -> dict[str, Any]:
        parts = self._do(STATE)
        obs = map_leaves(lambda *shares: np.concatenate(shares), *(part["obs"] for part in parts))
        return {"name": self.name, "obs": obs, "envs": [env for part in parts for env in part["envs"]]}

    def restore(self, state: dict[str, Any]) -> Tree:
        require_count(self.name, len(state["envs"]), self.count)
        self.exact_resume = all(self._do(RESTORE, [_share_of(state, share) for share in self._shares]))
        return self._rows.first()

    def close(self) -> None:
        self._own.envs.close()
        self._workers.close()
        self._rows.segment.close()


def _share_of(state: dict[str, Any], share: slice) -> dict[str, Any]:
    """The state of some rows; it has the same form."""
    return {**state, "obs": map_leaves(lambda leaf: leaf[share], state["obs"]), "envs": state["envs"][share]}


class AsyncPoolEnvs(AsyncEnvs):
    """``count`` environments, of which the ``batch`` rows that are ready first are served."""

    def __init__(self, recipe: Recipe, count: int, batch: int, workers: int, seed: int) -> None:
        self.count, self.batch, self.name = count, batch, recipe.name
        self.observation_space, self.extras_space = recipe.observation_space, recipe.extras_space
        self._actions = ActionCodec(recipe.source_spaces[1], batch)
        self.action_space = self._actions.space
        self._recipe, self._workers_asked, self._seed, self._restores = recipe, workers, seed, 0
        self._start(seed)

    def _start(self, seed: int) -> None:
        shares = shares_of(self.count, self._workers_asked)
        self._rows, self._workers = self._recipe.start(self.count, shares, seed, apart=True)
        self._owner = [worker for worker, share in enumerate(shares) for _ in range(self.count)[share]]
        self._held = HeldRows(self.name, self.count, self.batch)
        self._acted = np.zeros(self.count, np.bool_)  # whether what a row answers is what an action led to
        self._ready: list[int] = []  # rows that have answered, first come first
        self._pending = 0  # rows that have not
        self._poll = select.poll()
        for channel in self._workers.channels:
            self._poll.register(channel, select.POLLIN)

    def reset(self) -> None:
        while self._pending:
            self._gather()
        self._ready.clear()
        self._acted[:] = False
        self._held.release_all()
        self._pending = self.count
        for worker in range(len(self._workers.channels)):
            self._workers.ask(worker, Packet(RESET))

    def recv(self) -> tuple[np.ndarray, Step]:
        self._held.require_enough()
        while len(self._ready) < self.batch:
            if not self._pending:
                raise EnvError(
                    f"{self.name}: {len(self._ready)} rows have answered and recv() waits for batch={self.batch}: the "
                    "others failed before; call reset() to begin anew in all of them."
                )
            self._gather()
        rows = np.sort(np.array(self._ready[: self.batch], np.int64))
        del self._ready[: self.batch]
        self._held.take(rows)
        return rows, self._rows.read_rows(rows, self._acted[rows])

    def _gather(self) -> None:
        """Wait until at least one row has answered; like ``Channel.receive``, look before sleeping."""
        found, until = 0, time.perf_counter() + self._workers.spin
        while not found:
            for worker, channel in enumerate(self._workers.channels):
                try:
                    while (message := channel.poll()) is not None:
                        self._pending -= 1
                        self._workers.checked(worker, message)
                        self._ready.append(message.code)
                        found += 1
                except EOFError:
                    raise self._workers.lost(worker) from None
            if not found and time.perf_counter() >= until:
                self._poll.poll()

    def send(self, rows: np.ndarray, action: Any) -> None:
        chosen = self._actions.accept(action)
        numbers = self._held.release(rows)
        self._rows.write_actions(numbers, chosen)
        self._acted[numbers] = True
        self._pending += len(numbers)
        asked: dict[int, list[Packet]] = {}
        for row in numbers.tolist():
            asked.setdefault(self._owner[row], []).append(Packet(row))
        for worker, messages in asked.items():
            self._workers.ask(worker, *messages)

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "count": self.count, "restores": self._restores}

    def restore(self, state: dict[str, Any]) -> None:
        require_count(self.name, int(state["count"]), self.count)
        self.close()
        self._restores = int(state["restores"]) + 1
        self._start(int(stream(self._seed, "env", "restored", self._restores).integers(2**31)))
        self.reset()

    def close(self) -> None:
        self._workers.close()
        self._rows.segment.close()
