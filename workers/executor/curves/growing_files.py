"""Incremental readers of a running script's logs, CSV files, JSON lists and TensorBoard event files.

Each read has limited time and memory. The fields of a source hold its state between reads and are saved as JSON. Files
may be truncated, replaced, half written or binary.
"""

import os
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Literal

from workers.executor.curves.csv_files import Table
from workers.executor.curves.library_file import point_of_moment
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
    "LibrarySource",
    "LogSource",
    "Place",
    "ResultsSource",
    "TableSource",
    "complete_lines",
]

Kind = Literal["log", "csv", "json", "tensorboard", "library"]

#: Highest number of bytes, lines and rows of one read.
_CHUNK: Final = 64 * 1024
_MOST_LINES: Final = 200
_MOST_ROWS: Final = 500
#: Longest line of a table in bytes: that of 10,000 columns, say.
_LONG_LINE: Final = 1024 * 1024
#: Unread bytes beyond which reading skips to near the end of a log: of a growing log, and of a finished one.
_BEHIND: Final = 16 * 1024 * 1024
BEHIND_AT_END: Final = 64 * 1024 * 1024
_MAX_RECORD: Final = 256 * 1024
_MAX_RESULTS: Final = 4 * 1024 * 1024


@dataclass
class Place:
    """Position in a file. `offset` includes the bytes that log rotation has removed."""

    offset: int = 0
    inode: int = 0
    #: Number of bytes before `offset` that log rotation has removed from the file.
    missing: int = 0

    def behind(self, file: int) -> int:
        """Return the number of unread bytes. A file that was truncated or replaced is read from its beginning."""
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
    """Log of one stream of rank 0."""

    where: str
    place: Place = field(default_factory=Place)
    reader: LineReader = field(default_factory=LineReader)
    most_behind: int = _BEHIND
    has_gaps: bool = False
    kind: ClassVar[Kind] = "log"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        if self.place.behind(file) > self.most_behind:
            self.place.offset += self.place.behind(file) - _CHUNK
            self.has_gaps = True
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
        place, reader = Place(**values["place"]), LineReader.from_json(values["reader"])
        return cls(values["where"], place, reader, has_gaps=values.get("has_gaps", False))


@dataclass
class TableSource:
    where: str
    place: Place = field(default_factory=Place)
    header: str = ""
    kind: ClassVar[Kind] = "csv"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        header = os.pread(file, _LONG_LINE, 0).split(b"\n", 1)
        if len(header) < 2:
            return []
        first = header[0].decode(errors="replace").strip("\r\ufeff ")
        if first != self.header:  # the file was rewritten with other columns
            self.header, self.place.offset = first, 0
        table = Table.of(first)
        if table is None or not self.place.behind(file):
            return []
        longest = _CHUNK if len(first) < _CHUNK // 2 else _LONG_LINE
        rows, used = complete_lines(self.place.read(file, longest), is_last=is_last, most=_MOST_ROWS, longest=longest)
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
class LibrarySource:
    """File in which rank 0 notes what Lightning or the Trainer of Transformers reports."""

    where: str
    place: Place = field(default_factory=Place)
    kind: ClassVar[Kind] = "library"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        if not self.place.behind(file):
            return []
        lines, used = complete_lines(self.place.read(file, _LONG_LINE), is_last=is_last, longest=_LONG_LINE)
        self.place.offset += used
        return [point for line in lines if (point := point_of_moment(line))]

    @property
    def stem(self) -> str:
        return "library"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "LibrarySource":
        return cls(values["where"], Place(**values["place"]))


@dataclass
class ResultsSource:
    """JSON list that the script rewrites with each new entry."""

    where: str
    #: Number of entries that were read. A shorter list is a new one.
    taken: int = 0
    #: Inode, size and modification time of the file at the last complete read.
    seen: tuple[int, int, int] = (0, 0, 0)
    kind: ClassVar[Kind] = "json"

    def read(self, file: int, pattern: LinePattern | None, *, is_last: bool) -> list[Point]:
        status = os.fstat(file)
        seen = status.st_ino, status.st_size, status.st_mtime_ns
        if seen == self.seen or status.st_size > _MAX_RESULTS:
            return []
        entries = points_of(os.pread(file, _MAX_RESULTS, 0))
        if entries is None:  # half written: the next read finds all of it
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
    #: Whether the file is no event file, or is corrupt from this position on.
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
        """Append the record's point to `points`. Skip long records (images, histograms) unread, and invalid ones."""
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


def complete_lines(
    data: bytes, *, is_last: bool, most: int = _MOST_LINES, longest: int = _CHUNK
) -> tuple[list[str], int]:
    """Return the complete lines, at most `most`, and the number of bytes that they took.

    Of text overwritten by carriage returns, only the newest counts. is_last: the file will not grow any more.
    """
    ends = data.rfind(b"\n") + 1
    lines = data[:ends].split(b"\n")[:-1]
    if len(lines) > most:
        lines = lines[:most]
        return _texts(lines), sum(map(len, lines)) + most
    rest = data[ends:]
    drawn = rest.rfind(b"\r")  # a progress bar begins with one: the text before it is complete
    if drawn > 0:
        lines.append(rest[:drawn])
        rest = rest[drawn:]
    if rest and (is_last or len(rest) >= longest):  # too long for a line
        lines += [rest] if is_last else []
        rest = b""
    return _texts(lines), len(data) - len(rest)


def _texts(lines: list[bytes]) -> list[str]:
    newest = (next((part for part in reversed(line.split(b"\r")) if part.strip()), b"") for line in lines)
    return [line.decode(errors="replace") for line in newest]
