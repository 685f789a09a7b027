"""Files that survive a crash: every byte of a record is written through ``write_all``, synced, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from starling.core.errors import StarlingError

__all__ = [
    "AppendFile",
    "explain",
    "read_bytes",
    "scratch_folder",
    "sync_directory",
    "write_all",
    "write_atomic",
    "write_new",
]

Buffer = bytes | bytearray | memoryview

WRITING = ".writing-"  # how the hidden name of a file or directory begins while it is being written

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def write_all(fd: int, data: Buffer) -> None:
    """Write every byte; the only place in ``records`` that puts bytes into a file of its own."""
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def write_new(path: Path, data: Buffer) -> None:
    """Create ``path``, which must not exist, and push its bytes to the disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Push the names in a directory to the disk: without it a rename may not outlive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: Buffer, error: type[StarlingError]) -> None:
    """Replace ``path`` as a whole: readers and crashes see the old bytes or the new ones, never a mixture."""
    beside = path.with_name(f"{WRITING}{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        try:
            write_new(beside, data)
            os.replace(beside, path)
            sync_directory(path.parent)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as reason:
        raise error(explain(reason, f"cannot write {path}", path.parent, len(data))) from reason


class AppendFile:
    """A file that grows by whole records: each is with the operating system when ``append`` returns."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._fd).st_size

    def append(self, record: bytes) -> None:
        try:
            write_all(self._fd, record)
        except OSError:
            os.ftruncate(self._fd, self.size)  # half a record would spoil the next one
            raise
        self.size += len(record)

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes; a link, a pipe or a larger file is an ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"{status.st_size:,} bytes, at most {limit:,} were expected", str(path))
        return file.read(status.st_size)  # a bound: read allocates what it is asked for


@contextlib.contextmanager
def scratch_folder(directory: Path | None) -> Iterator[Path]:
    """A folder for a while, in ``directory`` if there is one: what somebody killed has left there is found and goes."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="starling-") as temporary:
            yield Path(temporary)
        return
    path = directory / "scratch"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def explain(reason: OSError, what: str, place: Path, needed: int | None) -> str:
    """An operating system's refusal in words, with the numbers that matter and the remedy."""
    if reason.errno in _FULL:
        try:
            free = f"{shutil.disk_usage(place).free:,} bytes are free there"
        except OSError:
            free = "how much is free there is unknown"
        kind = "the disk is full" if reason.errno == errno.ENOSPC else "the quota or file size limit is reached"
        wanted = "" if needed is None else f"{needed:,} bytes were needed, "
        return f"{what}: {kind}; {wanted}{free}. Make room, or choose another disk."
    if reason.errno in _FORBIDDEN:
        return (
            f"{what}: {os.strerror(reason.errno).lower()} in {place}. Grant write permission, or choose another place."
        )
    return f"{what}: {reason.strerror or reason}. Choose another place."
