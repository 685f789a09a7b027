"""Manifests: each names the files of one checkpoint, is signed with its digest, and appears under its name whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from starling.core.errors import CheckpointError
from starling.data.saving.files import file_name, sync_directory, verify_tensors, write_bytes
from starling.data.untrusted import Untrusted, json_object

__all__ = ["Manifests"]

FORMAT = 2
NAME = re.compile(r"manifest-(\d{8,18})\.json")


def _entries_of(manifest: Untrusted) -> Iterator[Untrusted]:
    """The entries of all files that a manifest names."""
    sources = manifest.part("sources")
    for entry in (sources.part(name) for name in sources):
        yield from entry.parts("blocks")
        yield from entry.part("arrays").parts("pieces")
        yield entry.part("small")
    if "also" in manifest:
        yield manifest.part("also")


class Manifests:
    """The numbered manifests of a directory; the newest ``keep`` checkpoints stay when another is written, or all."""

    def __init__(self, directory: Path, keep: int | None = None) -> None:
        self.directory, self._keep = directory, keep

    def _path(self, number: int) -> Path:
        return self.directory / f"manifest-{number:08d}.json"

    def numbers(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        found = (NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def write(self, number: int, content: dict[str, Any]) -> Path:
        """Make a checkpoint valid whose files have been written; then delete the old ones."""
        text = json.dumps({"format": FORMAT, "number": number, **content}, indent=1, sort_keys=True)
        signed = json.dumps({"digest": hashlib.sha256(text.encode()).hexdigest(), "manifest": text})
        sync_directory(self.directory)  # the files have their names before a manifest speaks of them
        write_bytes(self._path(number), signed.encode())
        if self._keep is not None:
            self.retain(self.numbers()[-self._keep :])
        return self._path(number)

    def read(self, number: int) -> Untrusted:
        """A manifest; CheckpointError where it is torn."""
        path = self._path(number)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}.") from error
        signed = Untrusted(json_object(content, str(path), CheckpointError), str(path))
        text = signed.text("manifest", len(content)).encode(errors="replace")
        if hashlib.sha256(text).hexdigest() != signed.text("digest"):
            raise CheckpointError(f"{path} is torn: its text does not match its digest. Load an older checkpoint.")
        manifest = Untrusted(json_object(text, str(path), CheckpointError), str(path))
        manifest.integer("format", FORMAT, FORMAT)
        return manifest

    def verify(self, number: int) -> Untrusted:
        """A manifest of which every file is there and whole; CheckpointError otherwise."""
        manifest = self.read(number)
        for entry in _entries_of(manifest):
            verify_tensors(self.directory, entry)
        return manifest

    def retain(self, numbers: Collection[int]) -> set[str]:
        """Delete all other checkpoints, and the files that none of these names; returns those that they name.

        Manifests go first, the newest before the others: a process that is killed here leaves no checkpoint that lacks
        a file, and none that is newer than one that is gone.
        """
        if not self.directory.is_dir():
            return set()
        for number in reversed(self.numbers()):
            if number not in numbers:
                self._path(number).unlink(missing_ok=True)
        sync_directory(self.directory)
        named: set[str] = set()
        for number in numbers:
            with contextlib.suppress(CheckpointError):  # a torn one names nothing
                named |= {file_name(entry) for entry in _entries_of(self.read(number))}
        for path in self.directory.iterdir():
            if path.suffix in (".safetensors", ".partial") and path.name not in named:
                path.unlink(missing_ok=True)
        return named
