"""Symbolic links in a run directory: a stranger's may lead to files that are none of the run's."""

from __future__ import annotations

import os
from pathlib import Path

from starling.core.errors import RunDirError

__all__ = ["refuse_links_out"]


def refuse_links_out(directory: Path) -> None:
    """Refuse a directory to be written where a link below it leads out of it; it may be reached through one itself."""
    inside = os.path.realpath(directory)
    for folder, folders, files in os.walk(directory):
        for link in (Path(folder, name) for name in (*folders, *files)):
            if link.is_symlink() and not _lies_in(os.path.realpath(link), inside):
                raise RunDirError(
                    f"{link} is a link to {os.readlink(link)}, which leads out of {directory}; a run writes into its "
                    "own directory alone. Remove the link, or put what it leads to in its place."
                )


def _lies_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
