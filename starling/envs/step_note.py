"""A note of which call of an environment is under way, in memory that outlives the process that makes the call.

Whoever finds that process killed by a signal reads in the note where it was. The notes of a process with B environments
are int64 [B, 4]: in the first row the call under way and the steps taken, and in each the running episode's seed and
the step at which it began. A step writes one number per environment, and two when all are done.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["CALL", "IDLE", "NOTE", "NOW", "EnvCall", "StepNote", "call_under_way", "read_note"]

CALL, NOW, SEED, BEGAN = range(4)
NOTE = 4  # numbers of a note for each environment
IDLE = 0  # no call; i + 1 is a step of environment i, -(i + 1) a reset


class EnvCall(NamedTuple):
    """A call that was begun."""

    method: str
    env: int
    seed: int
    step: int  # of the episode

    def __str__(self) -> str:
        step = f", step {self.step} of the episode" if self.step else ""
        return f"a {self.method} of environment {self.env} (episode seed {self.seed}{step})"


class StepNote:
    """What ``GymEnvs`` writes while it steps: ``numbers``, the rows one after the other."""

    def __init__(self, numbers: list[int] | memoryview) -> None:
        self.numbers = numbers  # both are cheaper to write to than an array

    @classmethod
    def unread(cls, count: int) -> StepNote:
        """The note of a process that nobody looks after."""
        return cls([0] * (NOTE * count))

    @classmethod
    def into(cls, rows: np.ndarray) -> StepNote:
        """A note that ``call_under_way`` reads from ``rows``."""
        rows[:] = 0
        return cls(rows.reshape(-1).data)

    @classmethod
    def in_file(cls, path: Path, count: int) -> StepNote:
        """A note that ``read_note`` finds at ``path``."""
        path.write_bytes(bytes(8 * NOTE * count))  # written, so that a full disk is an error here and not a SIGBUS
        return cls.into(np.memmap(path, np.int64, "r+", shape=(count, NOTE)))

    def begin(self, i: int, seed: int, now: int) -> None:
        """An episode of environment i begins with this seed, after ``now`` steps."""
        self.numbers[NOTE * i + SEED], self.numbers[NOTE * i + BEGAN] = seed, now


def call_under_way(rows: np.ndarray, first: int = 0) -> EnvCall | None:
    """The call that was not finished when the process that wrote ``rows`` was gone; None where there was none.

    ``first`` is the number of the first of its environments. ``rows`` may hold several notes, one after the other.
    """
    for start in np.flatnonzero(rows[:, CALL]).tolist():
        call = int(rows[start, CALL])
        row = start + abs(call) - 1
        seed, began = rows[row, SEED:].tolist()
        step = int(rows[start, NOW]) - began + 1
        return EnvCall("step", first + row, seed, step) if call > 0 else EnvCall("reset", first + row, seed, 0)
    return None


def read_note(path: Path) -> EnvCall | None:
    """The call that the writer of a note ``in_file`` had begun; None where there was none, or never a note."""
    try:
        return call_under_way(np.fromfile(path, np.int64).reshape(-1, NOTE))
    except FileNotFoundError:
        return None
