"""Files of a running script, read bit by bit: its logs, CSV files and TensorBoard's event files.

Each look at a file costs a limited time and memory. What remains for the next one is in the source's fields, which are
written down as JSON. Files may be cut, replaced, half written or no text at all.
"""

import os
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Literal

from workers.executor.curves.csv_files import Table
from workers.executor.curves.log_parser import LineReader
from workers.executor.curves.parsed_points import Point
from workers.executor.curves.pattern import LinePattern
from workers.executor.curves.tensorboard import (
    HEADER_BYTES,
    TRAILER_BYTES,
    EventFileError,
    point_of,
    record_length,
)
from workers.executor.curves.val_dict_list import RESULTS_FILE, points_of
from workers.executor.log_rotation import KEPT_HEAD_BYTES, shortened_by

__all__ = [
    "BEHIND_AT_END",
    "EventSource",
    "Kind",
    "LogSource",
    "Place",
    "ResultsSource",
    "TableSource",
    "complete_lines",
]

Kind = Literal["log", "csv", "json", "tensorboard"]

_CHUNK: Final = 64 * 1024
_MOST_LINES: Final = 200
_MOST_ROWS: Final = 500
#: Further behind than this, a log is read on near its end: one that is being written, and one that has ended.
_BEHIND: Final = 1024 * 1024
BEHIND_AT_END: Final = 16 * 1024 * 1024
_MAX_RECORD: Final = 256 * 1024
_MAX_RESULTS: Final = 4 * 1024 * 1024


@dataclass
class Place:
    """Position in a file. `offset` counts what the log keeper has left out as well."""

    offset: int = 0
    inode: int = 0
    #: Bytes that the file lacks before `offset`, as the log keeper has shortened it.
    missing: int = 0

    def behind(self, file: int) -> int:
        """Bytes that are not read yet. A file that was cut or replaced is read from its beginning."""
        status = os.fstat(file)
        if status.st_ino != self.inode:
            self.offset, self.missing, self.inode = 0, 0, status.st_ino
        if status.st_size < self.offset - self.missing:
            self._find_again(file)
        return max(0, status.st_size - (self.offset - self.missing))

    def read(self, file: int, limit: int) -> bytes:
        return os.pread(file, limit, self.offset - self.missing)

    def _find_again(self, file: int) -> None:
        shortened = shortened_by(os.pread(file, KEPT_HEAD_BYTES, 0))
        if shortened is None:
            self.offset, self.missing = 0, 0
            return
        self.missing = shortened.left_out - (shortened.end - shortened.start)
        self.offset = max(self.offset, shortened.end + self.missing)


@dataclass
class LogSource:
    """A stream of rank 0."""

    where: str
    place: Place = field(default_factory=Place)
    reader: LineReader = field(default_factory=LineReader)
    most_behind: int = _BEHIND
    kind: ClassVar[Kind] = "log"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        if self.place.behind(file) > self.most_behind:
            self.place.offset += self.place.behind(file) - _CHUNK
        data = self.place.read(file, _CHUNK)
        lines, used = complete_lines(data, is_last=is_last and len(data) < _CHUNK)
        self.place.offset += used
        return [point for line in lines if (point := self.reader.point(line, pattern))]

    @property
    def stem(self) -> str:
        return self.where

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "LogSource":
        return cls(values["where"], Place(**values["place"]), LineReader.from_json(values["reader"]))


@dataclass
class TableSource:
    where: str
    place: Place = field(default_factory=Place)
    header: str = ""
    kind: ClassVar[Kind] = "csv"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        header = os.pread(file, _CHUNK, 0).split(b"\n", 1)
        if len(header) < 2:
            return []
        first = header[0].decode(errors="replace").strip("\r\ufeff ")
        if first != self.header:  # written anew, with other columns
            self.header, self.place.offset = first, 0
        table = Table.of(first)
        if table is None or not self.place.behind(file):
            return []
        data = self.place.read(file, _CHUNK)
        rows, used = complete_lines(data, is_last=is_last, most=_MOST_ROWS)
        begins = self.place.offset == 0
        self.place.offset += used
        return [point for row in rows[1 if begins else 0 :] if (point := table.point(row))]

    @property
    def stem(self) -> str:
        return self.where.rpartition("/")[2].removesuffix(".csv").removesuffix(".tsv")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TableSource":
        return cls(values["where"], Place(**values["place"]), values["header"])


@dataclass
class ResultsSource:
    """A JSON list, which is written anew with each of its entries."""

    where: str
    #: Entries that were read. A shorter list is another one.
    taken: int = 0
    #: Inode, size and moment of writing of the file that was read last.
    seen: tuple[int, int, int] = (0, 0, 0)
    kind: ClassVar[Kind] = "json"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        status = os.fstat(file)
        seen = status.st_ino, status.st_size, status.st_mtime_ns
        if seen == self.seen or status.st_size > _MAX_RESULTS:
            return []
        entries = points_of(os.pread(file, _MAX_RESULTS, 0))
        if entries is None:  # half written: the next look finds all of it
            return []
        begins = self.taken if len(entries) >= self.taken else 0
        self.taken = min(len(entries), begins + _MOST_ROWS)
        if self.taken == len(entries):
            self.seen = seen
        return [point for point in entries[begins : self.taken] if point is not None]

    @property
    def stem(self) -> str:
        return self.where.rpartition("/")[0].rpartition("/")[2] or RESULTS_FILE.removesuffix(".json")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ResultsSource":
        inode, size, written = values["seen"]
        return cls(values["where"], values["taken"], (inode, size, written))


@dataclass
class EventSource:
    where: str
    place: Place = field(default_factory=Place)
    #: It is no event file, or is broken from here on.
    is_broken: bool = False
    kind: ClassVar[Kind] = "tensorboard"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        points: list[Point] = []
        for _ in range(_MOST_ROWS):
            if self.is_broken or self.place.behind(file) < HEADER_BYTES:
                break
            try:
                length = record_length(self.place.read(file, HEADER_BYTES))
                whole = HEADER_BYTES + length + TRAILER_BYTES
                if self.place.behind(file) < whole:
                    break
                self._take(file, length, points)
                self.place.offset += whole
            except EventFileError:
                self.is_broken = True
        return points

    def _take(self, file: int, length: int, points: list[Point]) -> None:
        """An image or a histogram of many bytes is passed over unread, a record that is no message as well."""
        if length > _MAX_RECORD:
            return
        record = os.pread(file, length, self.place.offset - self.place.missing + HEADER_BYTES)
        try:
            point = point_of(record)
        except EventFileError:
            return
        if point is not None:
            points.append(point)

    @property
    def stem(self) -> str:
        return self.where.rpartition("/")[0].rpartition("/")[2] or "tensorboard"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "EventSource":
        return cls(values["where"], Place(**values["place"]), values["is_broken"])


def complete_lines(data: bytes, *, is_last: bool, most: int = _MOST_LINES) -> tuple[list[str], int]:
    """The lines that are complete, at most so many, and how many bytes they took.

    Of what was written over by carriage returns the newest counts. is_last: nothing more will come.
    """
    ends = data.rfind(b"\n") + 1
    lines = data[:ends].split(b"\n")[:-1]
    if len(lines) > most:
        lines = lines[:most]
        return _texts(lines), sum(map(len, lines)) + most
    rest = data[ends:]
    drawn = rest.rfind(b"\r")  # a bar begins with one: what stands before it is complete
    if drawn > 0:
        lines.append(rest[:drawn])
        rest = rest[drawn:]
    if rest and (is_last or len(rest) >= _CHUNK):  # so long a line is no line
        lines += [rest] if is_last else []
        rest = b""
    return _texts(lines), len(data) - len(rest)


def _texts(lines: list[bytes]) -> list[str]:
    newest = (next((part for part in reversed(line.split(b"\r")) if part.strip()), b"") for line in lines)
    return [line.decode(errors="replace") for line in newest]
