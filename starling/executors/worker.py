"""A role in a process of its own: ``python -m starling.executors.worker FILE``.

The file holds one JSON object: which role of which program, and the descriptors of its shared memory and bells. What
the role reports goes as JSON lines over a pipe; its result, into a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.children import end_with
from starling.core.effects import Checkpoint, Effect, Interrupted, Message, Pulse, Report
from starling.core.errors import EnvError, StarlingError
from starling.core.importing import imported
from starling.core.lockfree import listen, ring
from starling.core.machine import give_way, pin
from starling.core.trees import Tree
from starling.executors.base import Executable, Running, Start
from starling.executors.edges import WAIT, Edges
from starling.executors.recording import Recorder
from starling.executors.role_status import DONE, WAITING, WORKING, RoleStatus
from starling.executors.shared_edges import SharedEdges
from starling.executors.waits import wait_of
from starling.formations import RoleId

__all__ = ["Driver", "main"]

PATIENCE = 0.2  # seconds between looks for those who missed a bell
LAST_WAIT = 1.0  # seconds that a role that ends the run waits at most where it is to stop
NICENESS = 5  # of a role that has started: one that is started again comes first, and is back soon on a full machine
BEHIND = 5  # more for roles beside those that end the run, for whom the others wait in the end


class Closed(Exception):
    """The run is over."""


class Driver:
    """Runs a role's code and carries out its effects."""

    def __init__(self, setup: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> None:
        self.role, self._setup, self._send = RoleId(setup["kind"], setup["index"]), setup, send
        self.program: Executable = imported(setup["program"]["factory"])(setup["program"])
        self.program.step_note = Path(setup["note"])
        formation = self.program.formation
        self.status = RoleStatus(formation, setup["status"])
        self._line = self.status.line(self.role)
        storage = SharedEdges(formation, self.program.messages(), setup["segments"])
        self._edges = Edges(formation, storage, time.monotonic, self.status.done, self._wake)

    def run(self) -> None:
        start = Start(**self._setup["start"] | {"unanswered": tuple(self._setup["start"]["unanswered"])})
        record, formation = self.program.record, self.program.formation
        code = Running(self.program.role(self.role, start))
        give_way(NICENESS + BEHIND * (self.role.kind != formation.ends))
        now = time.monotonic()
        self.status.arrays["began"][self._line] = self.status.arrays["since"][self._line] = now
        recorder = Recorder(record, formation, self.role, start.incarnation) if record else None
        with contextlib.closing(recorder) if recorder else contextlib.nullcontext():
            try:
                effect = code.resume()
                while effect is not None:
                    try:
                        result = self._carry_out(effect)
                    except Interrupted:
                        effect = code.interrupt()
                        continue
                    if recorder is not None:
                        recorder.note(effect, result)
                    effect = code.resume(result)
                self._finish(code.result)
            except (Closed, Interrupted):
                code.close()

    def _carry_out(self, effect: Effect) -> Any:
        arrays, line, now = self.status.arrays, self._line, time.monotonic()
        arrays["beat"][line] = now
        arrays["busy"][line] += now - arrays["since"][line]
        arrays["since"][line] = now
        if isinstance(effect, Report):
            return self._report(effect)
        if isinstance(effect, Checkpoint):
            return self.program.save(self.role, effect, now - self._setup["started"])
        self._check_open()  # at each: beside a learner that is done nobody ever waits
        if isinstance(effect, Pulse):
            arrays["steps"][line] = effect.steps
            return self.status.stop
        result = self._edges.attempt(self.role, effect)
        if result is WAIT:
            result = self._wait(effect)
        edge = result.edge if isinstance(result, Message) else getattr(effect, "edge", None)
        arrays["passed"][line, self.status.column(edge)] += 1
        return result

    def _check_open(self) -> None:
        if self.status.closed or os.getppid() != self._setup["parent"]:
            raise Closed

    def _wait(self, effect: Effect) -> Any:
        """Wait until the effect can be carried out."""
        arrays, line, wait = self.status.arrays, self._line, wait_of(effect)
        self.status.set_wait(line, wait)
        arrays["state"][line] = WAITING
        result: Any = WAIT
        while result is WAIT:
            arrays["sleeping"][line] = 1
            result = self._edges.attempt(self.role, effect)  # it may have become possible before the flag was seen
            if result is WAIT:
                self._check_open()
                self._check_stopping(arrays["since"][line])
                deadline = self._edges.deadline(self.role)
                seconds = PATIENCE if deadline is None else min(PATIENCE, max(0.0, deadline - time.monotonic()))
                listen(self._setup["bell"], seconds)
                arrays["beat"][line] = time.monotonic()
        arrays["sleeping"][line] = 0
        arrays["state"][line] = WORKING
        now = time.monotonic()
        arrays["waited"][line, self.status.column(wait.edge)] += now - arrays["since"][line]
        arrays["since"][line] = now
        return result

    def _check_stopping(self, since: float) -> None:
        """Whoever should stop does not wait for those that are frozen, or hang in an environment."""
        ends = self.role.kind == self.program.formation.ends
        if ends and self.status.stop and time.monotonic() - since > LAST_WAIT:
            self.status.arrays["sleeping"][self._line] = 0
            self.status.arrays["state"][self._line] = WORKING
            raise Interrupted

    def _wake(self, role: RoleId, edge: str) -> None:
        line = self.status.line(role)
        if self.status.arrays["sleeping"][line]:
            self.status.arrays["sleeping"][line] = 0
            ring(self._setup["bells"][line])

    def _report(self, report: Report) -> None:
        histograms = {name: np.asarray(x, np.float32).ravel()[:4096].tolist() for name, x in report.histograms.items()}
        values = {name: float(value) for name, value in report.values.items()}
        self._send({"report": {"steps": report.steps, "values": values, "histograms": histograms}})

    def _finish(self, result: Tree) -> None:
        from starling.records import checkpoint

        checkpoint.save(Path(self._setup["scratch"]), f"result-{self.role}", {"result": result}, {})
        self.status.arrays["state"][self._line] = DONE
        self._send({"done": True})


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what an interruption means
    setup = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    end_with(setup["parent"])
    if setup["pin"] is not None:
        pin(setup["pin"])
    reports = os.fdopen(setup["report"], "w", buffering=1, encoding="utf-8")

    def send(message: dict[str, Any]) -> None:
        """Send a message to the supervisor."""
        with contextlib.suppress(BrokenPipeError):
            reports.write(json.dumps(message) + "\n")

    try:
        Driver(setup, send).run()
        return 0
    except Exception as error:
        expected = isinstance(error, StarlingError)
        if not expected:
            traceback.print_exc()
        message = str(error)
        if isinstance(error, EnvError) and error.__cause__ is not None:  # what the environment itself raised
            message += "\n" + "".join(traceback.format_exception(error.__cause__))
        send({"error": {"type": type(error).__name__, "message": message}})
        return 3 if expected else 4


if __name__ == "__main__":
    sys.exit(main(sys.argv))
