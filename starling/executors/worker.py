"""A role in a process of its own: ``python -m starling.executors.worker DESCRIPTOR``.

The descriptor is the read end of a pipe with one JSON object: which role of which program, and the descriptors of its
shared memory and bells. What the role reports goes as JSON lines over another pipe; its result, into a file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.effects import Checkpoint, Effect, Message, Pulse, Report, RoleCode, Sleep
from starling.core.errors import EnvError, StarlingError
from starling.core.machine import give_way
from starling.core.trees import Tree
from starling.executors.base import Program, Start
from starling.executors.memory_edges import WAIT
from starling.executors.recording import Recorder
from starling.executors.role_status import DONE, WAITING, WORKING, Board
from starling.executors.shared_edges import SharedEdges, make_segments
from starling.executors.waits import describe, edge_of
from starling.formations import RoleId

__all__ = ["Driver", "main"]

PATIENCE = 0.2  # seconds between looks for those who missed a bell
NICENESS = 5  # of a role that has started: one that is started again comes first, and is back soon on a full machine
BEHIND = 5  # more for roles beside those that end the run, for whom the others wait in the end
NAP = 0.0005  # seconds between looks while more messages may come


class Closed(Exception):
    """The run is over."""


class Driver:
    """Runs a role's code and carries out its effects."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.role = RoleId(told["kind"], told["index"])
        self._out = os.fdopen(told["report"], "w", buffering=1)
        self._bell, self._bells = told["bell"], told["bells"]
        os.set_blocking(self._bell, False)
        factory, _, name = told["program"]["factory"].partition(":")
        self.program: Program = getattr(importlib.import_module(factory), name)(told["program"])
        formation = self.program.formation
        self.board = Board(formation, told["board"])
        self.line = self.board.line(self.role)
        parts = make_segments(formation, self.program.messages(), told["segments"])
        self.edges = SharedEdges(formation, self.role, parts, self.board.done)
        self._started = time.monotonic() - told["seconds"]
        self.scratch = Path(told["scratch"])
        self.start = Start(**told["start"] | {"unanswered": tuple(told["start"]["unanswered"])})
        self._parent = told["parent"]
        record = told["record"]
        self._recorder = Recorder(Path(record), formation, self.role, self.start.incarnation) if record else None

    def run(self) -> None:
        code: RoleCode = self.program.role(self.role, self.start)
        give_way(NICENESS + BEHIND * (self.role.kind != self.program.formation.ends))
        now = time.monotonic()
        self.board.arrays["began"][self.line] = self.board.arrays["since"][self.line] = now
        result: Any = None
        try:
            while True:
                try:
                    effect = code.send(result)
                except StopIteration as stop:
                    self._finish(stop.value)
                    return
                result = self._carry_out(effect)
                if self._recorder is not None:
                    self._recorder.note(effect, result)
        except Closed:
            code.close()
        finally:
            if self._recorder is not None:
                self._recorder.close()

    def _carry_out(self, effect: Effect) -> Any:
        arrays, line = self.board.arrays, self.line
        now = time.monotonic()
        arrays["beat"][line] = now
        arrays["busy"][line] += now - arrays["since"][line]
        arrays["since"][line] = now
        if isinstance(effect, Pulse):
            arrays["steps"][line] = effect.steps
            self._check_open()
            return self.board.stop
        if isinstance(effect, Report):
            return self._report(effect)
        if isinstance(effect, Checkpoint):
            return self.program.save(self.role, effect, time.monotonic() - self._started)
        if isinstance(effect, Sleep):
            self._wait_for(effect, time.monotonic() + effect.seconds)
            return None
        self._check_open()  # at each: beside a learner that is done nobody ever waits
        result, woken = self.edges.attempt(effect)
        self._wake(woken)
        if result is WAIT:
            result = self._wait(effect)
        edge = result.edge if isinstance(result, Message) else edge_of(effect)
        arrays["passed"][line, self.board.column(edge)] += 1
        return result

    def _check_open(self) -> None:
        if self.board.closed or os.getppid() != self._parent:
            raise Closed

    def _wait(self, effect: Effect) -> Any:
        """Wait until the effect can be carried out."""
        arrays, line, column = self.board.arrays, self.line, self.board.column(edge_of(effect))
        self.board.say(line, describe(effect))
        arrays["state"][line] = WAITING
        result: Any = WAIT
        while result is WAIT:
            arrays["sleeping"][line] = 1
            result, woken = self.edges.attempt(effect)  # again: it may have become possible before the flag was seen
            self._wake(woken)
            if result is WAIT:
                self._check_open()
                gathering = self.edges.gathering
                select.select([self._bell], [], [], NAP if gathering else PATIENCE)
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 4096)
                arrays["beat"][line] = time.monotonic()
        arrays["sleeping"][line] = 0
        arrays["state"][line] = WORKING
        now = time.monotonic()
        arrays["waited"][line, column] += now - arrays["since"][line]
        arrays["since"][line] = now
        return result

    def _wait_for(self, effect: Sleep, until: float) -> None:
        arrays, line = self.board.arrays, self.line
        self.board.say(line, describe(effect))
        arrays["state"][line] = WAITING
        while (left := until - time.monotonic()) > 0:
            self._check_open()
            time.sleep(min(left, PATIENCE))
        arrays["state"][line] = WORKING
        now = time.monotonic()
        arrays["waited"][line, -1] += now - arrays["since"][line]
        arrays["since"][line] = now

    def _wake(self, roles: list[RoleId]) -> None:
        sleeping = self.board.arrays["sleeping"]
        for role in roles:
            line = self.board.line(role)
            if sleeping[line]:
                sleeping[line] = 0
                with contextlib.suppress(OSError):
                    os.write(self._bells[line], b"!")

    def _report(self, report: Report) -> None:
        histograms = {name: np.asarray(x, np.float32).ravel()[:4096].tolist() for name, x in report.histograms.items()}
        self.tell({"report": {"steps": report.steps, "values": _numbers(report.values), "histograms": histograms}})

    def _finish(self, result: Tree) -> None:
        from starling.records import checkpoint

        checkpoint.save(self.scratch, f"result-{self.role}", {"result": result}, {})
        self.board.arrays["state"][self.line] = DONE
        self.tell({"done": True})

    def tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._out.write(json.dumps(message) + "\n")


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what an interruption means
    with os.fdopen(int(argv[1])) as pipe:
        told = json.load(pipe)
    if told["cpus"]:
        os.sched_setaffinity(0, told["cpus"])
    driver = None
    try:
        driver = Driver(told)
        driver.run()
        return 0
    except StarlingError as error:
        _tell_error(told, driver, error)
        return 3
    except Exception as error:
        traceback.print_exc()
        _tell_error(told, driver, error)
        return 4


def _tell_error(told: dict[str, Any], driver: Driver | None, error: Exception) -> None:
    cause = error.__cause__ if isinstance(error, EnvError) else None
    frames = "".join(traceback.format_exception(cause)) if cause is not None else ""
    message = {"error": {"type": type(error).__name__, "message": str(error), "traceback": frames}}
    if driver is not None:
        driver.tell(message)
    else:
        os.write(told["report"], (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv))
