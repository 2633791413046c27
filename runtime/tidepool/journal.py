"""Files that are read while they are written: journals, and small files that are replaced atomically.

A journal is an append-only file of JSON lines, on disk before any message is sent, with one writing process. An entry's
number is its line's position, from 1. Where the writer moves between hosts, lines carry the number of its lead (see
`tidepool.fence`): a line behind one of a newer lead counts for nothing.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tidepool.protocol import Entry, entry_from_json, entry_to_json
from tidepool.safe_open import open_regular

__all__ = ["Journal", "Leads", "end_of", "last_record", "read_journal", "read_numbered", "replace_file", "written_lead"]

#: Bytes that are read first to find the last line; a line of very many metrics is longer.
_TAIL_BYTES = 65536


class Leads:
    """Reader's account of the leads under which the lines of a journal were written."""

    def __init__(self) -> None:
        self.newest = 0

    def believes(self, line: Mapping[str, Any]) -> bool:
        """Return whether the next line counts: none by a newer lead stands before it."""
        number = line.get("lead_number", 0)
        number = number if isinstance(number, int) else 0
        self.newest = max(self.newest, number)
        return number == self.newest


class Journal:
    """The writing end. lead_number: of the lead that writes; 0 where the writer does not move."""

    def __init__(self, path: Path, lead_number: int = 0) -> None:
        self.lead_number = lead_number
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self._file = open(path, "ab")  # noqa: SIM115 - held open for the writer's life
        self._number = path.read_bytes().count(b"\n")

    def append(self, entry: Entry) -> int:
        """Write one entry through to the disk and return its number."""
        kind, data = entry_to_json(entry)
        line = {"number": self._number + 1, "kind": kind, "data": data}
        line |= {"lead_number": self.lead_number} if self.lead_number else {}
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._number += 1
        return self._number

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[Entry]:
    """Return every entry of a known kind that counts; empty if the file does not exist.

    The last line may be torn: its writer was killed, or is about to complete it.
    """
    return [entry for _, entry in read_numbered(path)]


def read_numbered(path: Path) -> list[tuple[int, Entry]]:
    """Return the same entries with their numbers."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    leads, found = Leads(), []
    for number, text in enumerate(content.split(b"\n")[:-1], start=1):
        line = json.loads(text)
        if leads.believes(line) and (entry := entry_from_json(line["kind"], line["data"])):
            found.append((number, entry))
    return found


def written_lead(path: Path) -> int:
    """Return the number of the newest lead that has written to the journal; 0 if there is none."""
    leads = Leads()
    for text in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        leads.believes(json.loads(text))
    return leads.newest


def last_record(path: Path) -> dict[str, Any]:
    """Return the last complete line of a file of JSON objects; empty if there is none."""
    descriptor = open_regular(path)
    if descriptor is None:
        return {}
    with open(descriptor, "rb") as file:
        line, _ = end_of(file)
    try:
        record = json.loads(line) if line else {}
    except ValueError:  # a script has written there
        return {}
    return record if isinstance(record, dict) else {}


def end_of(file: BinaryIO) -> tuple[bytes, int]:
    """Return the last complete line without its end, b"" if there is none, and the position after it."""
    size, length = file.seek(0, os.SEEK_END), _TAIL_BYTES
    while True:
        start = file.seek(max(0, size - length))
        tail = file.read(size - start)
        end = tail.rfind(b"\n")
        begin = tail.rfind(b"\n", 0, max(end, 0)) + 1
        if not start or (end >= 0 and begin):
            return tail[begin : max(end, 0)], start + end + 1
        length *= 4


def replace_file(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write `text` to a temporary file and rename it, so that no reader sees a part of it. mode: before the umask."""
    unfinished = path.with_name(f".{path.name}.new")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    unfinished.rename(path)


def _cut_torn_line(path: Path) -> None:
    """Remove the incomplete line of a killed writer, which no reader has used."""
    try:
        with open(path, "r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    except FileNotFoundError:
        return
