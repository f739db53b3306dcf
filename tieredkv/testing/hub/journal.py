"""A file of changes, one JSON object a line, that outlives the process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["Change", "Journal", "replay"]

Change: TypeAlias = dict[str, Any]
"""Something that happened, as JSON; what it means is the writer's business."""


def replay(path: Path) -> Iterator[Change]:
    """Return the changes in a file, if it exists; a last line that was cut off never happened.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a journal.
    """
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)


class Journal:
    """Changes in the order in which they happened. Not for several threads at once.

    Every append reaches the operating system before it returns, so a killed process loses nothing
    that it has answered; a crash of the machine may.

    Args:
        path: The file.
        changes: What it begins with, in the place of all that it held.
    """

    def __init__(self, path: Path, changes: Iterable[Change]) -> None:
        draft = path.with_suffix(".draft")
        draft.write_bytes(b"".join(map(_line, changes)))
        draft.replace(path)
        self._file = path.open("ab", buffering=0)

    def append(self, change: Change) -> None:
        """Add one change."""
        self._file.write(_line(change))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(change: Change) -> bytes:
    return json.dumps(change, separators=(",", ":")).encode() + b"\n"
