"""Records of what executors chose for a role: one choice per line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from starling.core.errors import RunError
from starling.records.lines import read_lines

__all__ = ["Choices", "RecordedChoice"]

TAKE, LATEST, PULSE = "take", "latest", "pulse"


class RecordedChoice(NamedTuple):
    """What an executor chose for a role; in a record, a line of JSON."""

    kind: str
    numbers: list[int]  # take: (edge, sender) of each message; latest: edge, sender, number; pulse: whether to stop


class Choices:
    """A role's recorded choices, one after another."""

    def __init__(self, role: str, path: Path) -> None:
        found = read_lines(path, self._parsed, "choice", RunError)
        self._role, self._choices = role, deque(choice for choice, _ in found)

    @staticmethod
    def _parsed(line: bytes) -> RecordedChoice | None:
        """The choice that a line holds; None where nobody wrote it."""
        try:
            kind, numbers = json.loads(line)
            whole = all(type(number) is int and 0 <= number < 2**63 for number in numbers)
            fits = {TAKE: len(numbers) % 2 == 0, LATEST: len(numbers) == 3, PULSE: len(numbers) == 1}[kind]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return RecordedChoice(kind, numbers) if whole and fits else None

    def __iter__(self) -> Iterator[RecordedChoice]:
        return iter(self._choices)

    def next(self, kind: str) -> list[int] | None:
        """The numbers of the next choice; None after the last: what came then was not part of the run."""
        if not self._choices:
            return None
        if self._choices[0].kind != kind:
            raise RunError(
                f"{self._role} makes a {kind} where {self._choices[0].kind} was recorded; a replay needs the code and "
                "the settings of the recorded run."
            )
        return self._choices[0].numbers

    def pop(self) -> None:
        self._choices.popleft()
