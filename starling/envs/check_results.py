"""What checking an environment found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CheckResult", "Level", "error", "ok", "warning"]

Level = Literal["error", "warning", "ok"]


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at."""

    level: Level  # error: training would fail or learn something wrong; warning: worth a thought
    what: str  # what was looked at, in a word or two
    found: str  # what was found
    rule: str  # what holds for a good environment
    remedy: str  # what to do; empty where nothing is to be done


def error(what: str, found: str, rule: str, remedy: str) -> CheckResult:
    return CheckResult("error", what, found, rule, remedy)


def warning(what: str, found: str, rule: str, remedy: str) -> CheckResult:
    return CheckResult("warning", what, found, rule, remedy)


def ok(what: str, found: str, rule: str = "") -> CheckResult:
    return CheckResult("ok", what, found, rule, "")
