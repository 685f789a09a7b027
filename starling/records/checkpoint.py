"""Checkpoints: trees on disk that are whole or absent, and never run code when loaded.

A checkpoint is a directory of three files: ``arrays.safetensors``, ``tree.json`` (structure and small leaves) and
``manifest.json`` (format, version, meta, and the size and SHA-256 of the others and of itself). It is written under
a hidden name beside its place, pushed to the disk and renamed; one that it replaces is set aside until then.

A named tuple comes back as a tuple; ``map_leaves(lambda _, new: new, like, loaded)`` puts the names back.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starling.core.errors import CheckpointError
from starling.core.trees import Tree
from starling.records.files import WRITING, explain, read_bytes, sync_directory, write_new
from starling.records.tensors import header_of, read_tensors, write_tensors
from starling.records.tree_json import decode, encode

__all__ = ["clean", "load", "restoring", "save", "verify"]

FORMAT, VERSION = "starling-checkpoint", 1
ARRAYS, TREE, MANIFEST = "arrays.safetensors", "tree.json", "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")
_REPLACED = ".replaced-"  # how the hidden name of a checkpoint that gives way to a new one begins
_TREE_LIMIT, _MANIFEST_LIMIT = 2**30, 2**26  # bytes


@contextmanager
def restoring(what: object) -> Iterator[None]:
    """A checkpoint may be whole and yet hold something else than the state of ``what``: say so."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error!s:.200}"
        raise CheckpointError(
            f"the checkpoint of {what} is not a state that it can go on from ({reason}); it was changed, or written by "
            "another version."
        ) from error


def save(directory: Path, name: str, tree: Tree, meta: dict[str, Any] | None = None) -> Path:
    """Write ``tree`` as ``directory/name``, replacing what was there only once the new one is safe on the disk."""
    if not _NAME.fullmatch(name):
        raise CheckpointError(f"{name!r} is no checkpoint name; use letters, digits, '.', '_' and '-'.")
    directory = Path(directory)
    structure, arrays = encode(tree)
    tree_bytes = _json(structure)
    meta_structure, meta_arrays = encode(meta or {})
    if meta_arrays:
        raise CheckpointError(f"meta holds arrays ({', '.join(meta_arrays)}); put them into the tree.")
    needed = len(header_of(arrays)[0]) + sum(array.nbytes for array in arrays.values()) + len(tree_bytes)
    target, beside = directory / name, directory / f"{WRITING}{name}-{uuid.uuid4().hex[:8]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(directory).free) < needed:
            raise OSError(errno.ENOSPC, f"only {free} bytes are free")
        try:
            beside.mkdir()
            files = {
                ARRAYS: {"bytes": needed - len(tree_bytes), "sha256": _write_arrays(beside / ARRAYS, arrays)},
                TREE: {"bytes": len(tree_bytes), "sha256": hashlib.sha256(tree_bytes).hexdigest()},
            }
            write_new(beside / TREE, tree_bytes)
            manifest = {"format": FORMAT, "version": VERSION, "meta": meta_structure, "files": files}
            write_new(beside / MANIFEST, _json(manifest | {"sha256": _own_checksum(manifest)}))
            sync_directory(beside)
            _put_in_place(beside, target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as reason:
        what = f"cannot save the checkpoint {target} (the previous one is untouched)"
        raise CheckpointError(explain(reason, what, directory, needed)) from reason
    return target


def load(path: Path) -> tuple[Tree, dict[str, Any]]:
    """Read and check a checkpoint: (tree, meta). Any defect is a ``CheckpointError`` that names it."""
    path = _whereabouts(Path(path))
    manifest = _read_manifest(path)
    tree_bytes = _read(path / TREE, _TREE_LIMIT)
    _check(path / TREE, manifest, len(tree_bytes), hashlib.sha256(tree_bytes).hexdigest())
    try:
        with open(path / ARRAYS, "rb", buffering=0, opener=_open_inside) as file:
            size = os.fstat(file.fileno()).st_size
            _check(path / ARRAYS, manifest, size)
            arrays, checksum = read_tensors(file, size, str(path / ARRAYS))
    except OSError as reason:
        raise CheckpointError(f"{path / ARRAYS} cannot be read: {_words(reason)}.") from reason
    _check(path / ARRAYS, manifest, size, checksum)
    meta = _meta(manifest, path)
    return decode(_parse(tree_bytes, path / TREE), arrays, str(path / TREE)), meta


def verify(path: Path) -> dict[str, Any]:
    """Check a checkpoint without holding its arrays in memory; its meta."""
    path = _whereabouts(Path(path))
    manifest = _read_manifest(path)
    for name in (TREE, ARRAYS):
        try:
            with open(path / name, "rb", buffering=0, opener=_open_inside) as file:
                size = os.fstat(file.fileno()).st_size
                _check(path / name, manifest, size)
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as reason:
            raise CheckpointError(f"{path / name} cannot be read: {_words(reason)}.") from reason
        _check(path / name, manifest, size, checksum)
    return _meta(manifest, path)


def clean(directory: Path) -> None:
    """Remove what interrupted saves left behind; only the directory's one writer may call this."""
    try:
        for entry in list(directory.iterdir()) if directory.is_dir() else ():
            target = directory / entry.name.removeprefix(_REPLACED)
            if entry.name.startswith(WRITING) or (target != entry and os.path.lexists(target)):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
            elif target != entry:
                os.rename(entry, target)
    except OSError as reason:
        raise CheckpointError(explain(reason, f"cannot tidy {directory}", directory, 0)) from reason


def _put_in_place(beside: Path, target: Path) -> None:
    """Rename, setting an older checkpoint of the same name aside: at every moment one of the two can be found."""
    aside = target.with_name(_REPLACED + target.name)
    if os.path.lexists(target):
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(target, aside)
    try:
        os.rename(beside, target)
    except OSError:
        if os.path.lexists(aside):
            os.rename(aside, target)
        raise
    sync_directory(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _whereabouts(path: Path) -> Path:
    """The directory to read: ``path``, or what a save that was cut short had set aside."""
    aside = path.with_name(_REPLACED + path.name)
    if not os.path.lexists(path) and aside.is_dir():
        path = aside
    if not os.path.lexists(path):
        raise CheckpointError(f"there is no checkpoint {path}.")
    if path.is_symlink() or not path.is_dir():
        kind = "link" if path.is_symlink() else "file"
        raise CheckpointError(f"{path} is a {kind}; a checkpoint is a directory of {ARRAYS}, {TREE} and {MANIFEST}.")
    return path


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, once it is known to be ours, whole, of a version we read, and to name our files alone."""
    try:
        strangers = {entry for entry in os.listdir(path) if entry[0] != "."} - {ARRAYS, TREE, MANIFEST}
    except OSError as reason:
        raise CheckpointError(f"{path} cannot be read: {_words(reason)}.") from reason
    if strangers:
        raise CheckpointError(f"{path} holds {', '.join(sorted(strangers)[:5])}, which no Starling checkpoint has.")
    manifest = _parse(_read(path / MANIFEST, _MANIFEST_LIMIT), path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} is foreign: its manifest does not say {FORMAT!r}.")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {manifest.get('version')!r:.40}; this Starling reads {VERSION}. "
            "Load it with the Starling that wrote it."
        )
    own = manifest.pop("sha256", None)
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != {ARRAYS, TREE}:
        raise CheckpointError(f"{path / MANIFEST} must name {ARRAYS} and {TREE}, and nothing else: torn or malicious.")
    if own != _own_checksum(manifest) or "meta" not in manifest:
        raise CheckpointError(f"{path / MANIFEST} does not match its own checksum: it is torn.")
    return manifest


def _meta(manifest: dict[str, Any], path: Path) -> dict[str, Any]:
    meta = decode(manifest["meta"], {}, str(path / MANIFEST))
    if not isinstance(meta, dict):
        raise CheckpointError(f"{path / MANIFEST} holds a {type(meta).__name__} as meta; values by name were expected.")
    return meta


def _check(path: Path, manifest: dict[str, Any], size: int, checksum: str | None = None) -> None:
    """Compare a file's size, and its checksum where known, with what the manifest promises."""
    promised = manifest["files"][path.name]
    if not isinstance(promised, dict) or promised.get("bytes") != size:
        expected = promised.get("bytes") if isinstance(promised, dict) else promised
        raise CheckpointError(f"{path} has {size:,} bytes, its manifest says {expected!r:.40}: it is torn.")
    if checksum is not None and promised.get("sha256") != checksum:
        raise CheckpointError(f"{path} does not match its checksum: it is torn.")


def _write_arrays(path: Path, arrays: dict[str, Any]) -> str:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        checksum = write_tensors(fd, arrays)
        os.fsync(fd)
    finally:
        os.close(fd)
    return checksum


def _open_inside(path: str, flags: int) -> int:
    """Open a regular file itself: never what a link points to, and never waiting for a pipe's other end."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not os.path.isfile(fd):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def _read(path: Path, limit: int) -> bytes:
    try:
        return read_bytes(path, limit)
    except OSError as reason:
        raise CheckpointError(f"{path} cannot be read: {_words(reason)}.") from reason


def _parse(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as reason:
        raise CheckpointError(f"{path} is no JSON: it is torn ({reason!s:.200}).") from reason


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except RecursionError:
        raise CheckpointError("the tree is nested too deeply to be stored; flatten it.") from None


def _own_checksum(manifest: dict[str, Any]) -> str:
    try:
        return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        raise CheckpointError("the manifest is nested too deeply.") from None


def _words(reason: OSError) -> str:
    if reason.errno == errno.ELOOP:
        return "it is a link, and links are not followed"
    return str(reason.strerror or reason).lower()
