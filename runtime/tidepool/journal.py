"""Files that are read while they are written: journals, and small files that are replaced atomically.

A journal is an append-only file of JSON lines, on disk before any message is sent, with one writing process. An entry's
number is its line's position, from 1. Where the writer moves between hosts, lines carry the number of its lead (see
`tidepool.fence`): a line behind one of a newer lead counts for nothing.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tidepool.protocol import Entry, ProtocolError, entry_from_json, entry_to_json
from tidepool.safe_open import ForeignFileError, open_ours, open_regular

__all__ = [
    "LONGEST_LINE_BYTES",
    "Journal",
    "Leads",
    "end_of",
    "entries_in",
    "last_record",
    "object_in",
    "read_journal",
    "read_numbered",
    "replace_file",
    "written_lead",
]

#: Length of a line above which no reader goes: scripts may write to the files, too.
LONGEST_LINE_BYTES = 512 * 1024

#: Bytes at the end of a journal that readers outside of the wall look at, and the length above which none is ours.
_MOST_BYTES, _LONGEST_BYTES = 64 * 1024 * 1024, 1024 * 1024 * 1024

#: Bytes that are read first to find the last line; a line of very many metrics is longer.
_TAIL_BYTES = 65536
_CHUNK_BYTES = 1024 * 1024


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
        """Raises OSError: ForeignFileError if a script has put something else there."""
        self.lead_number = lead_number
        descriptor = open_ours(path.absolute(), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        if os.fstat(descriptor).st_size > _LONGEST_BYTES:  # of zeros, as long a file takes no room
            os.close(descriptor)
            raise ForeignFileError(errno.EFBIG, "too long to be ours", str(path))
        self._number = _cut_torn_line(descriptor)
        self._file = open(descriptor, "ab")  # noqa: SIM115 - held open for the writer's life

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
    """Return every entry of a known kind that counts; empty if there is no such file.

    The last line may be torn: its writer was killed, or is about to complete it. What a script has written is left out.
    """
    return [*entries_in(path)]


def entries_in(path: Path, most_bytes: int = _MOST_BYTES) -> Iterator[Entry]:
    """Yield the same entries one by one; of a journal that is longer than most_bytes, those at its end."""
    return (entry for _, entry in _numbered(_lines(path, most_bytes)))


def read_numbered(path: Path) -> list[tuple[int, Entry]]:
    """Return the entries of a journal that only its reader writes, with their numbers."""
    return [*_numbered(_lines(path))]


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, Entry]]:
    leads = Leads()
    for number, line in enumerate(lines, start=1):
        values = object_in(line)
        try:
            if leads.believes(values) and (entry := entry_from_json(str(values.get("kind")), values.get("data"))):
                yield number, entry
        except ProtocolError:
            continue


def written_lead(path: Path) -> int:
    """Return the number of the newest lead that has written to the journal; 0 if there is none."""
    leads = Leads()
    for line in _lines(path, _MOST_BYTES):
        leads.believes(object_in(line))
    return leads.newest


def object_in(line: bytes) -> dict[str, Any]:
    """Return the object of a line of JSON; empty if a script has written something else there."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _lines(path: Path, most_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the complete lines of a journal, up to one that is too long to be ours.

    most_bytes: length above which only lines at the end are read; None: no length is.
    """
    try:
        descriptor = open_ours(path.absolute(), os.O_RDONLY)
    except (FileNotFoundError, ForeignFileError):
        return
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if most_bytes is not None and size > most_bytes:
            file.seek(size - most_bytes)
            if not file.readline(LONGEST_LINE_BYTES).endswith(b"\n"):  # the rest of a line
                return
        left = size if most_bytes is None else min(size, most_bytes)
        while (line := file.readline(LONGEST_LINE_BYTES)).endswith(b"\n"):
            yield line
            left -= len(line)
            if most_bytes is not None and left <= 0:  # a script may write faster than this reads
                return


def last_record(path: Path) -> dict[str, Any]:
    """Return the last complete line of a file of JSON objects; empty if there is none."""
    descriptor = open_regular(path)
    if descriptor is None:
        return {}
    with open(descriptor, "rb") as file:
        line, _ = end_of(file)
    return object_in(line)


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


def _cut_torn_line(descriptor: int) -> int:
    """Remove the incomplete line of a killed writer, which no reader has used; return the number of lines before it."""
    count = length = place = 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, place):
        count += chunk.count(b"\n")
        length = place + end if (end := chunk.rfind(b"\n") + 1) else length
        place += len(chunk)
    os.ftruncate(descriptor, length)
    return count
