"""Files of one record per line, of which a crash may have torn the last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from starling.core.errors import StarlingError
from starling.records.files import read_bytes

__all__ = ["read_lines"]

Record = TypeVar("Record")

READABLE = 1 << 30  # bytes


def read_lines(
    path: Path, parse: Callable[[bytes], Record | None], what: str, error: type[StarlingError]
) -> Iterator[tuple[Record, bytes]]:
    """Each record and its line, up to a torn end; ``parse`` gives None for a line that is no whole ``what``."""
    try:
        data = read_bytes(path, READABLE) if os.path.lexists(path) else b""
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}.") from reason
    first_bad: int | None = None
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        record = parse(line) if line.endswith(b"\n") else None
        if record is None:
            first_bad = first_bad or number
        elif first_bad is not None:
            raise error(f"{path}, line {first_bad}, is no {what}, yet {what}s follow; mend or remove it.")
        else:
            yield record, line
