"""The processes of a pool of environments, as the one who asks them sees them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import weakref
from typing import Any

import numpy as np

from starling.core import errors
from starling.core.children import end_group, start_module
from starling.core.errors import EnvError, RequestError, StarlingError
from starling.core.machine import processors
from starling.envs.channels import ERROR, START, Channel, Packet, pack, unpack
from starling.envs.step_note import call_under_way

__all__ = ["WorkerProcesses", "WorkerTraceback"]

SPIN = 2e-4  # seconds of looking for a message before sleeping, where a processor is free for it
GRACE = 5.0  # seconds that workers have to close their environments
CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGILL}  # as codes of an end


class WorkerTraceback(Exception):
    """Where in its process a worker's error came from."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerProcesses:
    """A process for each of the ``shares`` of ``count`` rows.

    ``setup`` says what to make of them; see ``worker``. In ``notes`` they write what they are about to do. They end
    with this object, with its process, or by ``close``.
    """

    def __init__(self, name: str, count: int, shares: list[slice], setup: dict[str, Any], notes: np.ndarray) -> None:
        self.shares, self._notes = shares, notes
        self.spin = SPIN if processors() > len(shares) else 0.0
        self._name, self._started, self._asked = name, False, [False] * len(shares)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.channels: list[Channel] = []
        self.close = weakref.finalize(self, _end, self.channels, self._processes)
        # The signal comes when the thread that started a process ends: only the main one ends with the process.
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else None
        try:
            for worker, share in enumerate(self.shares):
                self._start(setup["segment"])
                part = {"first": share.start, "share": share.stop - share.start, "spin": self.spin, "parent": parent}
                self.ask(worker, Packet(START, pack({**setup, "count": count, **part})))
            self.answers()
        except BaseException:
            self.close()
            raise
        self._started = True

    def _start(self, segment: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._processes.append(
                start_module("starling.envs.worker", str(theirs.fileno()), [theirs.fileno(), segment])
            )
        self.channels.append(Channel(ours))

    def ask(self, worker: int, *messages: Packet) -> None:
        """Ask one worker; that it is gone shows when it is to answer."""
        self._asked[worker] = True
        with contextlib.suppress(EOFError):
            self.channels[worker].send(*messages)

    def ask_all(self, code: int, contents: list[bytes] | None = None) -> None:
        if any(self._asked):  # somebody was interrupted while he waited for these
            self.answers()
        for worker in range(len(self.channels)):
            self.ask(worker, Packet(code, b"" if contents is None else contents[worker]))

    def answers(self) -> list[bytes]:
        """What every worker answers, in their order; raises the first error when all have answered."""
        found: list[bytes] = []
        wrong: list[StarlingError] = []
        for worker, channel in enumerate(self.channels):
            if not self._asked[worker]:
                continue
            try:
                found.append(self.checked(worker, channel.receive(self.spin)))
            except EOFError:
                wrong.append(self.lost(worker))
            except StarlingError as error:
                wrong.append(error)
            self._asked[worker] = False
        if wrong:
            raise wrong[0]
        return found

    def checked(self, worker: int, message: Packet) -> bytes:
        """The content of an answer; raises the error that it may be."""
        if message.code != ERROR:
            return message.content
        found = unpack(message.content)
        kind = getattr(errors, found["type"], EnvError)
        text = found["message"]
        if kind is errors.UnknownNameError:
            text = (
                f"{text} The id was found where the run was started and not in worker {worker}: write it with the "
                "module that registers it, as in 'my_package:MyEnv-v0'."
            )
            kind = RequestError
        try:
            error = kind(text)
        except TypeError:  # it takes more than a message
            error = RequestError(text)
        raise error from (WorkerTraceback(found["traceback"]) if found["traceback"] else None)

    def lost(self, worker: int) -> EnvError:
        """The error of a worker that is gone."""
        share, process = self.shares[worker], self._processes[worker]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        code = process.returncode
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"ended with code {code}"
        )
        last = share.stop - 1
        rows = f"environment {last}" if share.start == last else f"environments {share.start} to {last}"
        when, remedy = "while it started", "see what it wrote to the error output"
        if self._started:
            call = call_under_way(self._notes[share], share.start)
            when = f"in {call}" if call is not None else "in the middle of its work"
            remedy = "go on from the last checkpoint"
        hint = "Where the system was out of memory, use fewer workers or environments."
        if code in CRASHES:
            hint = "Native code that the environment calls has crashed; python -X faulthandler shows where."
        return EnvError(f"{self._name}: worker {worker} with {rows} {how} {when}; {remedy}. {hint}")


def _end(channels: list[Channel], processes: list[subprocess.Popen[bytes]]) -> None:
    """Leave no process behind: first let those go that want to by themselves."""
    for channel in channels:
        channel.close()
    until = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        end_group(process)
