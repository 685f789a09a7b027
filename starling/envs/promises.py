"""What environments promise of what they return, and how a broken promise is described.

Errors of a run and the findings of ``check`` say it with the same words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["LARGEST", "Broken", "broken_flags", "broken_form", "broken_info", "broken_reward", "shown"]

LARGEST = float(np.finfo(np.float32).max)  # rewards are carried as float32

RESULTS = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
REMEDIES = {
    "reset": "Return both; {} will do for info.",
    "step": "Return all five; a single 'done', as in old Gym, is to be split into terminated and truncated.",
}


class Broken(NamedTuple):
    """A promise that was not kept."""

    found: str  # what arrived
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}. {self.rule} {self.remedy}"


def broken_form(method: str, result: Any) -> Broken | None:
    """What is wrong with ``result`` of reset() or step(), whatever its parts hold; None where nothing is."""
    names = RESULTS[method]
    if isinstance(result, (tuple, list)) and len(result) == len(names):
        return None
    found = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
    return Broken(f"{method}() returned {found}", f"{method}() returns ({', '.join(names)}).", REMEDIES[method])


def broken_reward(reward: Any) -> Broken | None:
    """What is wrong with a reward; None where nothing is."""
    try:
        if np.ndim(reward) == 0 and -LARGEST <= 0.0 + reward <= LARGEST:  # not so where it is NaN
            return None
    except (OverflowError, TypeError, ValueError):  # no number, or one beyond float64
        pass
    rule = f"A reward is one finite number, of at most {LARGEST:.1e}."
    return Broken(f"the reward {shown(reward)} arrived", rule, "Return float(reward), and look for divisions by zero.")


def broken_flags(terminated: Any, truncated: Any) -> Broken | None:
    """What is wrong with the flags of an end; None where both are truth values, however they are spelt."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not _is_truth_value(flag):
            rule = "terminated and truncated are one truth value each."
            return Broken(f"{name}={shown(flag)} arrived", rule, f"Return bool({name}), or any() of several.")
    return None


def _is_truth_value(flag: Any) -> bool:
    try:
        return isinstance(flag, (bool, np.bool_)) or bool(flag == 0 or flag == 1)
    except (TypeError, ValueError):  # several values, or what cannot be compared
        return False


def broken_info(info: Any) -> Broken | None:
    """What is wrong with the info of a result; None where nothing is."""
    if isinstance(info, dict):
        return None
    return Broken(f"info={shown(info)} arrived", "info is a dict.", "Return {} where there is nothing to say.")


def shown(value: Any) -> str:
    """A value and its type as text, cut short."""
    kind = type(value).__name__
    try:
        text = repr(value)
    except Exception:  # the environment's own code, or a number with too many digits
        return f"of type {kind}"
    return f"{text if len(text) <= 60 else f'{text[:60]}…'} ({kind})"
