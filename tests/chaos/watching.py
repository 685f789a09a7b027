"""What is seen of a run from outside, apart from the code under test: its processes, what they hold and leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Holding", "Launched", "holding", "left_in_shared_memory"]

ROOT = Path(__file__).parents[2]
MARK = "STARLING_CHAOS"
PATIENCE = 20.0  # seconds that processes have to go


class Launched:
    """A command of ``starling`` in a process of its own; all that descend from it are known by a mark they inherit."""

    def __init__(self, *arguments: str | Path, before: str = "", **environment: str) -> None:
        """``before`` is a shell command that is run first, such as a ``ulimit``."""
        self.mark = uuid.uuid4().hex
        command = [sys.executable, "-m", "starling.cli.main", *map(str, arguments)]
        shell = ["bash", "-c", f'{before}; exec "$@"', "bash", *command] if before else command
        own = {"PYTHONPATH": str(ROOT), "STARLING_CHAOS": self.mark, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            shell, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **own, **environment},
        )  # fmt: skip

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def finish(self, timeout: float = 300.0) -> tuple[int, str]:
        """The exit code, and what went to the error output; one that takes longer is ended: code -9."""
        try:
            _, errors = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            _, errors = self.process.communicate()
        return self.process.returncode, errors

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def family(self) -> list[int]:
        """All processes that descend from it and live, itself included."""
        wanted, found = f"{MARK}={self.mark}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _state(entry) not in "ZX":
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def left(self) -> list[int]:
        """Those that are still there some time after it ended; they are ended now."""
        until = time.monotonic() + PATIENCE
        while (found := self.family()) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *what: object) -> None:
        self.kill()
        self.process.communicate()
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _state(entry: Path) -> str:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


@dataclass(frozen=True)
class Holding:
    """What processes hold together."""

    memory: int  # bytes that are resident and not shared
    descriptors: int
    threads: int


def holding(pids: list[int]) -> Holding:
    """What these processes hold now."""
    page, found = os.sysconf("SC_PAGE_SIZE"), [0, 0, 0]
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
            found[0] += (resident - shared) * page
            found[1] += len(os.listdir(f"/proc/{pid}/fd"))
            found[2] += len(os.listdir(f"/proc/{pid}/task"))
    return Holding(*found)


@contextlib.contextmanager
def left_in_shared_memory() -> Iterator[list[str]]:
    """A list that has, in the end, what was left behind in shared memory and among temporary files."""
    found: list[str] = []
    before = set(_names())
    yield found
    found.extend(sorted(set(_names()) - before))


def _names() -> Iterator[str]:
    for place, prefix in (("/dev/shm", ""), ("/tmp", "starling-")):
        with contextlib.suppress(OSError):
            yield from (f"{place}/{name}" for name in os.listdir(place) if name.startswith(prefix))
