"""Values from outside, of a file or of another process, checked before anything follows them.

Compiled loops do not look where a number leads: a count that is too large writes beyond its array. So whatever a state,
a manifest, a journal or a message brings is held against the layout that it will index.

    saved = Untrusted(state, "the adder's state", "this adder has 3 environments")
    count = saved.array("count", (3,), np.int64, 0, length - 1)
    rows = saved.part("rows")
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from starling.core.errors import CheckpointError, StarlingError

__all__ = ["LARGEST", "Untrusted", "json_object"]

LARGEST = 2**62  # of what is counted: the sum of two such numbers has sixty-four bits
DEEPEST = 16  # brackets within each other
LONGEST = 1_000  # characters
DAMAGED = "It is damaged or of another layout; restore an older one."

Error = type[StarlingError]
Shape = tuple[int | None, ...]  # None: any size


class Untrusted:
    """A mapping whose parts have a type and a range, or raise ``error`` with the place and what to do.

    ``layout`` says in words what the values must fit. ``plain`` is the mapping itself.
    """

    def __init__(
        self, value: Any, what: str, layout: str = "", remedy: str = DAMAGED, error: Error = CheckpointError
    ) -> None:
        self.what, self._about = what, (layout, remedy, error)
        if not isinstance(value, Mapping):
            self.refuse(reprlib.repr(value), "an object with named parts")
        self.plain = value

    def refuse(self, arrived: str, rule: str) -> NoReturn:
        layout, remedy, error = self._about
        raise error(f"{self.what}: {arrived} arrived, {rule} was expected{layout and f' ({layout})'}. {remedy}")

    def _refuse(self, name: str, value: Any, rule: str) -> NoReturn:
        self.refuse(f"{reprlib.repr(name)} = {reprlib.repr(value)}", rule)

    def __contains__(self, name: str) -> bool:
        return name in self.plain

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain)

    def only(self, *names: str) -> None:
        """Refuse parts of any other name."""
        if others := [name for name in self.plain if name not in names]:
            self.refuse(f"{reprlib.repr(others)} beside {', '.join(names)}", "nothing else")

    def get(self, name: str) -> Any:
        """A part that is checked elsewhere."""
        if name not in self.plain:
            self.refuse(f"nothing under {name!r}", "a value")
        value = self.plain[name]
        return value.item() if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0 else value

    def part(self, name: str) -> Untrusted:
        """A mapping within this one; without parts where it is missing, as files leave out what is empty."""
        return Untrusted(self.plain.get(name, {}), f"{self.what}, {name!r}", *self._about)

    def parts(self, name: str) -> list[Untrusted]:
        """A list of mappings."""
        found = self.get(name)
        if not isinstance(found, list):
            self._refuse(name, found, "a list")
        return [Untrusted(each, f"{self.what}, {name!r} {i}", *self._about) for i, each in enumerate(found)]

    def integer(self, name: str, low: int = 0, high: int = LARGEST) -> int:
        value = self.get(name)
        if not _is_whole(value, low, high):
            self._refuse(name, value, f"{low}" if low == high else f"a whole number from {low} to {high}")
        return int(value)

    def integers(self, name: str, low: int = 0, high: int = LARGEST) -> list[int]:
        """A list of whole numbers."""
        found = self.get(name)
        if not isinstance(found, list) or not all(_is_whole(each, low, high) for each in found):
            self._refuse(name, found, f"a list of whole numbers from {low} to {high}")
        return found

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if not (isinstance(value, bool) or _is_whole(value, 0, 1)):
            self._refuse(name, value, "true or false")
        return bool(value)

    def number(self, name: str, low: float, high: float) -> float:
        value = self.get(name)
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not low <= value <= high:
            self._refuse(name, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, name: str, longest: int = LONGEST) -> str:
        value = self.get(name)
        if not isinstance(value, str) or len(value) > longest:
            self._refuse(name, value, f"a text of at most {longest} characters")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        found = self.get(name)
        if not isinstance(found, list) or not all(isinstance(each, str) and len(each) <= LONGEST for each in found):
            self._refuse(name, found, f"a list of texts of at most {LONGEST} characters")
        return found

    def array(
        self, name: str, shape: Shape, dtype: Any, low: float | None = None, high: float | None = None
    ) -> np.ndarray:
        """An array of exactly this shape and type, whose values lie in the range where one is given."""
        value, expected = self.get(name), f"{np.dtype(dtype)}[{', '.join('N' if n is None else str(n) for n in shape)}]"
        if not isinstance(value, np.ndarray):
            self._refuse(name, value, expected)
        fits = value.dtype == np.dtype(dtype) and value.ndim == len(shape)
        if not fits or any(n not in (None, m) for n, m in zip(shape, value.shape)):
            self.refuse(f"{name!r} {value.dtype}{list(value.shape)}", expected)
        if low is not None and high is not None:
            self.within(name, value, low, high)
        return value

    def within(self, name: str, array: np.ndarray, low: float, high: float) -> None:
        """Refuse values outside the range, and those that are no numbers."""
        least, most = (array.min().item(), array.max().item()) if array.size else (low, high)
        if not (low <= least and most <= high):
            self.refuse(f"{name!r} from {least} to {most}", f"a range from {low} to {high}")

    def exactly(self, name: str, count: int, numbers: np.ndarray, places: np.ndarray) -> None:
        """Refuse unless the first ``count`` numbers are the true ``places``, each of them once."""
        rule = f"its first {count} numbers are the {np.count_nonzero(places)} places that it lists, each once"
        self.check(count == np.count_nonzero(places), name, rule)
        listed, seen = numbers[:count], np.zeros(places.size, np.bool_)
        self.within(name, listed, 0, places.size - 1)
        seen[listed] = True
        self.check((seen == places).all(), name, rule)

    def check(self, holds: Any, name: str, rule: str) -> None:
        """Refuse a part that breaks a rule which it has with others."""
        if not holds:
            layout, remedy, error = self._about
            raise error(f"{self.what}: {name!r} breaks the rule that {rule}{layout and f' ({layout})'}. {remedy}")


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def json_object(content: bytes | str, what: str, error: Error) -> dict[str, Any]:
    """An object from JSON: no NaN or infinity, and no deeper than any that is written here."""
    try:
        value = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as reason:
        raise error(f"{what} cannot be read as JSON: {reason}.") from reason
    if not isinstance(value, dict):
        raise error(f"{what}: {reprlib.repr(value)} arrived, an object was expected.")
    if _is_deeper(value, DEEPEST):
        raise error(f"{what} has more than {DEEPEST} brackets within each other.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)
