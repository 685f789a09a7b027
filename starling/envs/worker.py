"""Some of many environments in a process of their own: ``python -m starling.envs.worker DESCRIPTOR``.

The descriptor is that of a socket; the first message says what to make, and where the shared memory is. Then each
message asks for one piece of work, and is answered when it is done. The worker ends when the other side is gone.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from starling.core.children import end_with
from starling.core.errors import SpaceError, StarlingError
from starling.core.importing import imported
from starling.core.registry import register
from starling.envs.channels import DONE, ERROR, RESET, Channel, Packet, pack, unpack
from starling.envs.constructing import single_constructor
from starling.envs.gym_envs import GymEnvs
from starling.envs.shared_rows import SharedRows
from starling.envs.step_note import StepNote
from starling.envs.together import Together
from starling.envs.tolerant import Tolerance

__all__ = ["main"]

Setup = dict[str, Any]
Reply = Callable[[Packet], None]


class AtOnce:
    """Steps all its rows at once."""

    def __init__(self, setup: Setup) -> None:
        self.envs = _make(setup, _constructor(setup), setup["share"], setup["first"])
        share = slice(setup["first"], setup["first"] + setup["share"])
        rows = _shared(setup, self.envs)
        self.envs.keep(StepNote.into(rows.notes[share]))
        self._rows = Together(self.envs, rows, share)

    def answer(self, asked: Packet, reply: Reply) -> None:
        answer = self._rows.do(asked.code, unpack(asked.content) if asked.content else None)
        reply(Packet(DONE, b"" if answer is None else pack(answer)))

    def close(self) -> None:
        self.envs.close()


class Apart:
    """Steps each row when it is asked to."""

    def __init__(self, setup: Setup) -> None:
        construct, share = _constructor(setup), range(setup["first"], setup["first"] + setup["share"])
        self.envs = {i: _make(setup, construct, 1, i) for i in share}
        self._rows = _shared(setup, self.envs[share[0]])
        self._actions = {i: self._rows.actions(slice(i, i + 1)) for i in share}
        for i, envs in self.envs.items():
            envs.keep(StepNote.into(self._rows.notes[i : i + 1]))

    def answer(self, asked: Packet, reply: Reply) -> None:
        if asked.code == RESET:
            for i in self.envs:
                reply(self._attempt(i, self._reset))
        else:
            reply(self._attempt(asked.code, self._step))

    def _attempt(self, row: int, work: Callable[[int], None]) -> Packet:
        """Every row that was asked for answers, with its number or with what went wrong in it."""
        try:
            work(row)
        except Exception as error:
            return _failure(error)
        return Packet(row)

    def _reset(self, row: int) -> None:
        self._rows.write_first(slice(row, row + 1), self.envs[row].reset())

    def _step(self, row: int) -> None:
        self._rows.write(slice(row, row + 1), self.envs[row].step(self._actions[row]))

    def close(self) -> None:
        for envs in self.envs.values():
            envs.close()


def _constructor(setup: Setup) -> Callable[[], gym.Env[Any, Any]]:
    for part in setup["parts"]:
        register(*part)
    env = setup["env"] if setup["path"] is None else imported(setup["path"])
    tolerance = None if setup["tolerance"] is None else Tolerance(**setup["tolerance"])
    return single_constructor(env, tolerance, **setup["kwargs"])


def _make(setup: Setup, construct: Callable[[], gym.Env[Any, Any]], count: int, first: int) -> GymEnvs:
    envs = GymEnvs(construct, count, setup["seed"], setup["name"], setup["extras"], first)
    for kind, expected, found in zip(("observation_space", "action_space"), setup["spaces"], envs.source_spaces):
        if repr(found) != expected:
            raise SpaceError(f"{setup['name']}: the {kind} of environment {first} is {found}, that of 0 is {expected}.")
    return envs


def _shared(setup: Setup, envs: GymEnvs) -> SharedRows:
    rows = SharedRows(envs.observation_space, envs.action_space, envs.extras_space, setup["count"], setup["segment"])
    if repr(rows.fields) != setup["fields"]:
        raise SpaceError(
            f"{setup['name']}: environment {setup['first']} has the layout {rows.fields}, environment 0 has "
            f"{setup['fields']}; all must observe the same, and tell the same in their infos."
        )
    return rows


def _serve(channel: Channel, setup: Setup) -> None:
    """Make the environments, and answer until nobody asks any more."""
    try:
        worker: AtOnce | Apart = (Apart if setup["apart"] else AtOnce)(setup)
    except Exception as error:
        channel.send(_failure(error))
        return
    channel.send(Packet(DONE))
    try:
        while True:
            asked = channel.receive(setup["spin"])
            try:
                worker.answer(asked, channel.send)
            except EOFError:
                raise
            except Exception as error:
                channel.send(_failure(error))
    finally:
        worker.close()


def _failure(error: Exception) -> Packet:
    expected = isinstance(error, StarlingError)
    text = str(error) if expected else f"{type(error).__name__}: {error}"
    cause = error.__cause__ if expected else error  # what the environment raised, where it did
    frames = "" if cause is None else "".join(traceback.format_exception(cause))
    return Packet(ERROR, pack({"type": type(error).__name__, "message": text, "traceback": frames}))


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side decides what an interruption means
    channel = Channel(socket.socket(fileno=int(argv[1])))
    with contextlib.suppress(EOFError):
        setup = unpack(channel.receive().content)
        if setup["parent"] is not None:
            end_with(setup["parent"])
        _serve(channel, setup)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
