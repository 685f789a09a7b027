"""``processes``: a process for each role, shared memory between them, and a supervisor that restarts them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from starling.core import errors
from starling.core.children import end_group, start_module
from starling.core.effects import Report
from starling.core.errors import RunError
from starling.core.lockfree import make_bell, ring
from starling.core.machine import Heartbeat, allow_descriptors, process_state
from starling.envs.step_note import read_note
from starling.executors.base import Executable, Results, Start, Watcher
from starling.executors.restarts import restart_of
from starling.executors.role_status import RoleStatus
from starling.executors.shared_edges import SharedEdges
from starling.formations import RoleId
from starling.records import checkpoint
from starling.records.files import scratch_folder

__all__ = ["Supervisor", "run"]

INTERVAL = 0.1  # seconds between the supervisor's checks of its children
STATUS = 1.0  # seconds between notes of who waits for whom
BESIDE = 256  # descriptors of whatever else the process has open
GRACE, SHORT_GRACE = 5.0, 0.5  # seconds that roles have to go when the run is over, and where it was interrupted
UNMOVED = 1.5  # seconds after an interruption that a role may be stopped by a signal
MOST_CRASHES, WITHIN = 5, 60.0  # crashes of one role within so many seconds that end a run
LONGEST_PAUSE = 2.0  # seconds before a role is restarted
MOST_READ = 1 << 20  # bytes of reports: more than a pipe holds


def run(program: Executable, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    with (
        scratch_folder(program.directory) as scratch,
        contextlib.closing(Supervisor(program, watcher, scratch, restore)) as supervisor,
    ):
        return supervisor.supervise()


class Child:
    """A role's process, and what is known of its past."""

    def __init__(self, role: RoleId, line: int) -> None:
        self.role, self.line = role, line  # of the role status
        self.process: subprocess.Popen[bytes] | None = None
        self.pipe, self.unread = -1, b""  # the end of its reports that is read here
        self.incarnation = 0
        self.heartbeat = Heartbeat()
        self.crashes: list[float] = []  # when it crashed of late
        self.restart_at: float | None = None  # when to restart it
        self.done = False
        self.error: dict[str, str] | None = None


class Supervisor:
    """Starts the roles, reads their reports, and restarts those that crash."""

    def __init__(self, program: Executable, watcher: Watcher, scratch: Path, restore: bool) -> None:
        self.program, self.watcher, self.scratch = program, watcher, scratch
        self.formation = program.formation
        allow_descriptors(BESIDE + 5 * len(list(self.formation)) * (1 + len(self.formation.edges)))
        self.role_status = RoleStatus(self.formation)
        self.edges = SharedEdges(self.formation, program.messages())
        self.children = {role: Child(role, self.role_status.line(role)) for role in self.formation}
        self._bells = [make_bell() for _ in self.children]
        self._selector = selectors.DefaultSelector()
        self._restore, self._started = restore, time.monotonic()
        self._spec = program.spec()
        self._status_at, self._stop_at = 0.0, float("inf")  # when to note a status next, when it was asked to stop

    def supervise(self) -> Results:
        ending = [child for role, child in self.children.items() if role.kind == self.formation.ends]
        for child in self.children.values():
            self._start(child, Start(restore=self._restore))
        while not all(child.done for child in ending):
            self._poll()
            if self.watcher.stopping(ending[0].role, int(self.role_status.arrays["steps"][ending[0].line])):
                self.role_status.ask_to_stop()
                self._stop_at = min(self._stop_at, time.monotonic())
                self._leave_stopped(ending)
        return {child.role: checkpoint.load(self.scratch / f"result-{child.role}")[0]["result"] for child in ending}

    def _leave_stopped(self, ending: list[Child]) -> None:
        """Whoever is stopped by a signal comes to no checkpoint."""
        if time.monotonic() < self._stop_at + UNMOVED:
            return
        for child in ending:
            if child.process is not None and process_state(child.process.pid) == "stopped":
                raise KeyboardInterrupt(f"{child.role} is stopped by a signal, and saves nothing")

    # -- starting

    def _start(self, child: Child, start: Start) -> None:
        role, line = child.role, child.line
        report, reported = os.pipe()
        self.role_status.arrays["state"][line] = self.role_status.arrays["sleeping"][line] = 0
        segments, bells = self.edges.descriptors(role), [ringing for _, ringing in self._bells]
        setup: dict[str, Any] = {
            "kind": role.kind,
            "index": role.index,
            "program": self._spec,
            "start": {**vars(start), "state": None},
            "status": self.role_status.segment.descriptor,
            "segments": segments,
            "bell": self._bells[line][0],
            "bells": bells,
            "report": reported,
            "scratch": str(self.scratch),
            "note": str(self._note(role)),
            "started": self._started,
            "parent": os.getpid(),
            "pin": line if self.program.pin_cpus else None,
        }
        self._note(role).unlink(missing_ok=True)
        path = self.scratch / f"setup-{role}.json"
        path.write_text(json.dumps(setup), encoding="utf-8")
        with self._log(role) as log:
            given = [reported, setup["status"], setup["bell"], *bells, *segments.values()]
            environment = self.program.environment(role)
            child.process = start_module("starling.executors.worker", str(path), given, environment, log)
        os.close(reported)
        os.set_blocking(report, False)
        child.pipe, child.unread = report, b""
        self._selector.register(report, selectors.EVENT_READ, child)
        child.restart_at, child.error, child.done = None, None, False
        self.role_status.arrays["pid"][line] = child.process.pid

    def _note(self, role: RoleId) -> Path:
        """Where a role notes which call of an environment it makes."""
        return self.scratch / f"note-{role}"

    def _log(self, role: RoleId) -> Any:
        """Where a role's error output goes."""
        directory = (self.program.directory or self.scratch) / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        return open(directory / f"{role}.log", "ab")

    # -- supervising

    def _poll(self) -> None:
        """Read what the roles report, notice who has ended, restart those whose time has come."""
        for key, _ in self._selector.select(INTERVAL):
            self._read_reports(key.data)
        now = time.monotonic()
        if now >= self._status_at:
            self._status_at = now + STATUS
            self.watcher.status(self.status(now))
            self._kill_unresponsive(now)
        for child in self.children.values():
            if child.process is not None and child.process.poll() is not None:
                self._ended(child, now)
            elif child.restart_at is not None and now >= child.restart_at:
                self._restart(child)

    def _kill_unresponsive(self, now: float) -> None:
        """Kill processes without a sign of life: they are restarted like those that crash."""
        for child in self.children.values():
            if child.process is None or not self.program.heartbeat:
                continue
            beat = float(self.role_status.arrays["beat"][child.line])
            silence = child.heartbeat.silence(child.process.pid, beat, now)
            if silence > self.program.heartbeat:
                with self._log(child.role) as log:
                    log.write(f"{child.role}: no sign of life for {silence:.0f} s; restarted\n".encode())
                child.process.kill()

    def status(self, now: float) -> dict[str, Any]:
        """What every role does and every edge holds."""
        return {
            "formation": self.formation.name,
            "ends": self.formation.ends,
            "seconds": round(now - self._started, 3),
            "roles": self.role_status.snapshot(now),
            "edges": self.edges.status(),
        }

    def _read_reports(self, child: Child) -> None:
        try:
            content = os.read(child.pipe, MOST_READ) if child.pipe >= 0 else b""
        except BlockingIOError:
            return
        if not content:
            self._close_pipe(child)
        *lines, child.unread = (child.unread + content).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "report" in message:
                self.watcher.report(child.role, Report(**message["report"]))
            elif "done" in message:
                child.done = True
            else:
                child.error = message["error"]

    def _close_pipe(self, child: Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _ended(self, child: Child, now: float) -> None:
        """A role's process has ended: well, or because of an error, or it crashed."""
        assert child.process is not None
        code = child.process.returncode
        end_group(child.process)  # what the role has started, and left behind
        child.process = None
        self._read_reports(child)
        self._close_pipe(child)
        if child.done or self.role_status.closed:
            return
        if code == 0 and self.role_status.stop:
            raise KeyboardInterrupt(f"{child.role} could not save where it was")
        if code == 3 and child.error is not None:
            raise _error_of(child.role, child.error)
        how = child.error["message"] if child.error else self._end_of(child, code)
        with self._log(child.role) as log:
            log.write(f"{child.role}: {how}\n".encode())
        child.crashes = [*(at for at in child.crashes if at >= now - WITHIN), now]
        if len(child.crashes) >= MOST_CRASHES:
            raise RunError(
                f"{child.role} crashed {len(child.crashes)} times within {WITHIN:.0f} s (at last: {how}); see "
                f"{self.program.directory or self.scratch}/logs/{child.role}.log."
            )
        self.role_status.arrays["restarts"][child.line] += 1
        child.restart_at = now + min(LONGEST_PAUSE, 0.05 * 2 ** (len(child.crashes) - 1))

    def _end_of(self, child: Child, code: int) -> str:
        """How a process ended that could not say so itself, and in which call of an environment."""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        call = read_note(self._note(child.role)) if code < 0 else None
        return f"{how} in {call}" if call else how

    def _restart(self, child: Child) -> None:
        """Restart a crashed role; where nobody may run ahead of it, all of them."""
        if self.formation.restarts_all(child.role.kind):
            self._stop_processes()
            self.edges.reset()
            for other in self.children.values():
                other.incarnation += 1
                self._start(other, Start(incarnation=other.incarnation, restore=True))
            return
        child.incarnation += 1
        done = self.role_status.done
        self._start(child, restart_of(self.formation, child.role, child.incarnation, self.edges, done))

    # -- stopping

    def _stop_processes(self, grace: float = 0.0) -> None:
        """End every process: first those that want to go by themselves, then all."""
        until = time.monotonic() + grace
        for child in self.children.values():
            if child.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, until - time.monotonic()))
                end_group(child.process)
                child.process = None
                self._close_pipe(child)

    def close(self) -> None:
        """Leave no process and no shared memory behind."""
        self.watcher.status(self.status(time.monotonic()))
        self.role_status.close_all()
        for _, ringing in self._bells:
            ring(ringing)
        self._stop_processes(SHORT_GRACE if self.role_status.stop else GRACE)
        self._selector.close()
        for ends in self._bells:
            for end in ends:
                os.close(end)
        self.edges.close()
        self.role_status.segment.close()


def _error_of(role: RoleId, error: dict[str, str]) -> Exception:
    """The error that ended a role, as if it had been raised here."""
    message = f"{role}: {error['message']}"
    try:
        return getattr(errors, error["type"], RunError)(message)
    except TypeError:  # it is made of something else than a message
        return RunError(message)
