"""Journals: append-only files of JSON lines, on disk before anybody is told. One process writes each.

An entry's number is its line's position, from 1.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["Journal", "read_journal"]


class Journal:
    """The writing end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self._file = open(path, "ab")  # noqa: SIM115 - held open for the writer's life
        self._number = len(read_journal(path))

    def append(self, kind: str, data: dict[str, Any]) -> int:
        """Write one entry through to the disk and return its number."""
        number = self._number + 1
        entry = {"number": number, "kind": kind, "data": data}
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._number = number
        return number

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Every whole entry; none if there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def _cut_torn_line(path: Path) -> None:
    """A writer killed in the middle of a line leaves it unfinished; nobody has read it."""
    try:
        with open(path, "r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    except FileNotFoundError:
        return
