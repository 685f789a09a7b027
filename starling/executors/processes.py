"""``processes``: a process for each role, shared memory between them, and a supervisor that starts them again."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from starling.core import errors
from starling.core.effects import Report
from starling.core.errors import RunError, StarlingError
from starling.executors.base import Program, Results, Start, Watcher
from starling.executors.heartbeat import Heartbeat
from starling.executors.restarts import restarts_all, where_it_was
from starling.executors.role_status import Board
from starling.executors.shared_edges import Broadcast, Ring, make_segments, name_of
from starling.formations import RoleId
from starling.records import checkpoint

__all__ = ["Supervisor", "run"]

LOOK = 0.1  # seconds between the supervisor's looks at its children
STATUS = 1.0  # seconds between notes of who waits for whom
GRACE = 5.0  # seconds that roles have to go when the run is over
MOST_CRASHES, WITHIN = 5, 60.0  # crashes of one role within so many seconds that end a run
LONGEST_PAUSE = 2.0  # seconds before a role is started again


def run(program: Program, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    with tempfile.TemporaryDirectory(prefix="starling-") as scratch:
        supervisor = Supervisor(program, watcher, Path(scratch), restore)
        try:
            return supervisor.supervise()
        finally:
            supervisor.close()


class Child:
    """A role's process, and what is known of its past."""

    def __init__(self, role: RoleId) -> None:
        self.role = role
        self.process: subprocess.Popen[bytes] | None = None
        self.pipe, self.unread = -1, b""  # the end of its reports that is read here
        self.incarnation = 0
        self.heartbeat = Heartbeat()
        self.crashes: deque[float] = deque()
        self.again_at: float | None = None  # when to start it again
        self.done = False
        self.error: dict[str, str] | None = None


class Supervisor:
    """Starts the roles, hears their reports, and starts again those that are lost."""

    def __init__(self, program: Program, watcher: Watcher, scratch: Path, restore: bool) -> None:
        self.program, self.watcher, self.scratch = program, watcher, scratch
        self.formation = program.formation
        self.board = Board(self.formation)
        self.parts = make_segments(self.formation, program.messages())
        self.children = {role: Child(role) for role in self.formation}
        self._bells = [os.pipe() for _ in self.children]
        self._selector = selectors.DefaultSelector()
        self._restore, self._started = restore, time.monotonic()
        self._spec = program.spec()
        self._status_at = 0.0
        for _, end in self._bells:
            os.set_blocking(end, False)

    def supervise(self) -> Results:
        ending = [child for role, child in self.children.items() if role.kind == self.formation.ends]
        for child in self.children.values():
            self._start(child, Start(restore=self._restore))
        while not all(child.done for child in ending):
            self._look()
            if self.watcher.stopping(ending[0].role, int(self.board.arrays["steps"][self.board.line(ending[0].role)])):
                self._ask_to_stop()
        return {child.role: self._result(child.role) for child in ending}

    # -- starting

    def _start(self, child: Child, start: Start) -> None:
        role, line = child.role, self.board.line(child.role)
        read, write = os.pipe()
        report, reported = os.pipe()
        self.board.arrays["state"][line] = self.board.arrays["sleeping"][line] = 0
        segments = {name_of(key): part.segment.descriptor for key, part in self.parts.items() if self._needs(role, key)}
        bells = [end for _, end in self._bells]
        told: dict[str, Any] = {
            "kind": role.kind,
            "index": role.index,
            "program": self._spec,
            "start": {**vars(start), "state": None},
            "board": self.board.segment.descriptor,
            "segments": segments,
            "bell": self._bells[line][0],
            "bells": bells,
            "report": reported,
            "scratch": str(self.scratch),
            "seconds": time.monotonic() - self._started,
            "parent": os.getpid(),
            "cpus": self._cpus(line),
            "record": str(self.program.record) if self.program.record else None,
        }
        inherited = [read, reported, told["board"], self._bells[line][0], *bells, *segments.values()]
        with self._log(role) as log:
            child.process = subprocess.Popen(
                [sys.executable, "-m", "starling.executors.worker", str(read)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stderr=log,
                process_group=0,  # an interruption from the keyboard is for the supervisor alone
            )
        os.close(read)
        os.close(reported)
        with os.fdopen(write, "w") as pipe:
            json.dump(told, pipe)
        os.set_blocking(report, False)
        child.pipe, child.unread = report, b""
        self._selector.register(report, selectors.EVENT_READ, child)
        child.again_at, child.error, child.done = None, None, False
        self.board.arrays["pid"][line] = child.process.pid

    def _needs(self, role: RoleId, key: tuple[str, int, int]) -> bool:
        """Whether a role has anything to do with a part of an edge."""
        name, source, target = key
        edge = self.formation.edge(name)
        if edge.kind == "queue":
            return role in (RoleId(edge.source, source), RoleId(edge.target, target))
        if edge.kind == "broadcast":
            return role == RoleId(edge.source, source) or role.kind in (edge.target, *edge.also)
        return role.kind == edge.source

    def _cpus(self, line: int) -> list[int]:
        """The processors that a role is kept to; none means all."""
        if not self.program.pin_cpus:
            return []
        available = sorted(os.sched_getaffinity(0))
        return [available[line % len(available)]]

    def _log(self, role: RoleId) -> Any:
        """Where a role's error output goes."""
        directory = (self.program.directory or self.scratch) / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        return open(directory / f"{role}.log", "ab")

    # -- looking

    def _look(self) -> None:
        """Hear what the roles say, notice who is gone, start again whose time has come."""
        for key, _ in self._selector.select(LOOK):
            self._hear(key.data)
        now = time.monotonic()
        if now >= self._status_at:
            self._status_at = now + STATUS
            self.watcher.status(self.status(now))
            self._end_the_silent(now)
        for child in self.children.values():
            if child.process is not None and child.process.poll() is not None:
                self._hear(child)
                self._gone(child, now)
            elif child.again_at is not None and now >= child.again_at:
                self._start_again(child)

    def _end_the_silent(self, now: float) -> None:
        """End processes without a sign of life: those that are lost are started again."""
        for child in self.children.values():
            if child.process is None or not self.program.heartbeat:
                continue
            beat = float(self.board.arrays["beat"][self.board.line(child.role)])
            silence = child.heartbeat.silence(child.process.pid, beat, now)
            if silence > self.program.heartbeat:
                with self._log(child.role) as log:
                    log.write(f"{child.role}: no sign of life for {silence:.0f} s; started again\n".encode())
                child.process.kill()

    def status(self, now: float) -> dict[str, Any]:
        """What every role does and every edge holds."""
        edges = []
        for (name, source, target), part in self.parts.items():
            edge = self.formation.edge(name)
            sender = edge.source if edge.kind == "collective" else f"{edge.source}-{source}"
            about: dict[str, Any] = {"edge": name, "kind": edge.kind, "from": sender}
            if isinstance(part, Ring):
                held = part.sent - part.taken
                about |= {"to": f"{edge.target}-{target}", "sent": part.sent, "held": held, "depth": part.depth}
            elif isinstance(part, Broadcast):
                about |= {"to": edge.target, "published": part.number}
            edges.append(about)
        seconds = now - self._started
        formation = {"formation": self.formation.name, "ends": self.formation.ends}
        return {**formation, "seconds": round(seconds, 3), "roles": self.board.snapshot(now), "edges": edges}

    def _hear(self, child: Child) -> None:
        if child.pipe < 0:
            return
        try:
            content = os.read(child.pipe, 1 << 20)
        except BlockingIOError:
            return
        if not content:
            self._hang_up(child)
            return
        *lines, child.unread = (child.unread + content).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "report" in message:
                said = message["report"]
                self.watcher.report(child.role, Report(said["steps"], said["values"], said["histograms"]))
            elif "done" in message:
                child.done = True
            else:
                child.error = message["error"]

    def _hang_up(self, child: Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _gone(self, child: Child, now: float) -> None:
        """A role's process has ended: well, or because of an error, or it was lost."""
        assert child.process is not None
        code = child.process.returncode
        while child.pipe >= 0:
            self._hear(child)
        child.process = None
        if child.done or self.board.closed:
            return
        if code == 3 and child.error is not None:
            raise _error_of(child)
        child.crashes.append(now)
        while child.crashes[0] < now - WITHIN:
            child.crashes.popleft()
        if len(child.crashes) >= MOST_CRASHES:
            how = child.error["message"] if child.error else f"ended with code {code}"
            raise RunError(
                f"{child.role} was lost {len(child.crashes)} times within {WITHIN:.0f} s (at last: {how}); see "
                f"{self.program.directory or self.scratch}/logs/{child.role}.log."
            )
        self.board.arrays["restarts"][self.board.line(child.role)] += 1
        child.again_at = now + min(LONGEST_PAUSE, 0.05 * 2 ** (len(child.crashes) - 1))

    def _start_again(self, child: Child) -> None:
        """Start a lost role anew; where nobody may run ahead of it, all of them."""
        if restarts_all(self.formation, child.role):
            self._stop_processes()
            for part in self.parts.values():
                part.reset()
            for other in self.children.values():
                other.incarnation += 1
                self._start(other, Start(incarnation=other.incarnation, restore=True))
            return
        child.incarnation += 1
        self._start(child, where_it_was(self.formation, child.role, child.incarnation, self._ring))

    def _ring(self, edge: str, source: int, target: int) -> Ring:
        part = self.parts[edge, source, target]
        assert isinstance(part, Ring)
        return part

    # -- stopping

    def _ask_to_stop(self) -> None:
        if not self.board.stop:
            self.board.ask_to_stop()

    def _result(self, role: RoleId) -> Any:
        tree, _ = checkpoint.load(self.scratch / f"result-{role}")
        return tree["result"]

    def _stop_processes(self, grace: float = 0.0) -> None:
        """End every process: first those that want to go by themselves, then all."""
        until = time.monotonic() + grace
        running = [child for child in self.children.values() if child.process is not None]
        for child in running:
            assert child.process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - time.monotonic()))
            if child.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.process.pid, signal.SIGKILL)
                child.process.wait()
            child.process = None
            self._hang_up(child)

    def close(self) -> None:
        """Leave no process and no shared memory behind."""
        self.watcher.status(self.status(time.monotonic()))
        self.board.close_all()
        for _, end in self._bells:
            with contextlib.suppress(OSError):
                os.write(end, b"!")
        self._stop_processes(GRACE)
        self._selector.close()
        for ends in self._bells:
            for end in ends:
                os.close(end)
        for part in self.parts.values():
            part.segment.close()
        self.board.segment.close()


def _error_of(child: Child) -> StarlingError:
    """The error that ended a role, as if it had been raised here."""
    assert child.error is not None
    kind = getattr(errors, child.error["type"], RunError)
    message = f"{child.role}: {child.error['message']}"
    if child.error["traceback"]:
        message += f"\n{child.error['traceback']}"
    try:
        return kind(message)
    except TypeError:
        return RunError(message)
