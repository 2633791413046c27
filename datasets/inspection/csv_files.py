"""Checks of CSV files: encoding, delimiter, columns, and the number of fields in every row."""

import codecs
import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from datasets.inspection.findings import Column, Findings, Head, PartFindings, Piece, Tick, file_word

__all__ = ["TABLE_SUFFIXES", "read_tables"]

FORMAT = "CSV files"
TABLE_SUFFIXES = frozenset({".csv", ".tsv"})
_HEAD_ROWS = 10
_MAX_COLUMNS = 2000
_SHOWN_COLUMNS = 50
_MAX_CELL = 200
#: Number of rows between two reports of the progress.
_ROWS_PER_TICK = 5000
_MAX_CLASSES = 50
#: Names of columns that contain a class.
_CLASS_NAMES = frozenset({"label", "labels", "class", "target", "category", "species", "y"})
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class _Unfit(ValueError):
    """A table is invalid; the message continues a sentence that begins with the file's name."""


def read_tables(findings: Findings, piece: Piece, tick: Tick) -> None:
    """Add rows and classes to the part, head and columns of the first file, and a problem for each error."""
    others = [name for name, file in piece.files.items() if file.suffix.lower() not in TABLE_SUFFIXES]
    for name, file in piece.files.items():
        if name not in others:
            _read_table(findings, piece.findings, name, file, tick)
    findings.warn_of_others(others)


def _read_table(findings: Findings, part: PartFindings, name: str, file: Path, tick: Tick) -> None:
    try:
        _read(findings, part, name, file, tick)
    except _Unfit as error:
        findings.refuse(f"{name} {error}")
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{error.object[error.start]:02x}" if error.start < len(error.object) else "its end"
        findings.refuse(f"{name} is not UTF-8 ({wrong} is no character): save it as UTF-8.")
    except csv.Error as error:
        findings.refuse(f"{name} cannot be read as CSV ({error}): check its quotes.")


def _read(findings: Findings, part: PartFindings, name: str, file: Path, tick: Tick) -> None:
    with file.open("rb") as raw:
        start = raw.read(64 * 1024)
    if not start.strip():
        raise _Unfit("is empty: remove the file or add data.")
    encoding = next((encoding for bom, encoding in _BOMS if start.startswith(bom)), "utf-8")
    if encoding != "utf-16" and b"\0" in start:
        raise _Unfit("contains NUL bytes, so it is not text: save it as CSV in UTF-8.")
    delimiter = _delimiter(start.decode(encoding, "replace"))
    with file.open("rb") as raw, io.TextIOWrapper(raw, encoding, newline="") as stream:
        rows = csv.reader(stream, delimiter=delimiter, strict=True)
        first = next(rows)
        second = next(rows, None)
        _check_against_others(findings, name, first)
        has_names = second is not None and _is_header(first, second)
        names = first if has_names else [f"column {number}" for number in range(1, len(first) + 1)]
        body = ([] if has_names else [first]) + ([second] if second is not None else [])
        table = _Table(names)
        numbered = _ticking(chain(body, rows), lambda: tick(raw.tell()))
        problems = table.read(numbered, starts_at=2 if has_names else 1)
    for sentence in problems:
        findings.refuse(f"{name} {sentence}")
    _store(findings, part, name, table)


class _Table:
    def __init__(self, names: list[str]) -> None:
        if len(names) > _MAX_COLUMNS:
            raise _Unfit(f"has {len(names)} columns: at most {_MAX_COLUMNS} are allowed.")
        self.names = names
        self.rows = 0
        self.head: list[list[str]] = []
        self.tallies = [_Tally() for _ in names[:_SHOWN_COLUMNS]]
        self.classes: Counter[str] | None = None
        self._class_column = next((i for i, name in enumerate(names) if name.strip().lower() in _CLASS_NAMES), None)
        if self._class_column is not None:
            self.classes = Counter()

    def read(self, rows: Iterator[list[str]], *, starts_at: int) -> list[str]:
        """Read all rows. Return sentences about rows of another length: three, and the number of further ones."""
        ragged: list[tuple[int, int]] = []
        count = 0
        for number, row in enumerate(rows, start=starts_at):
            if not row:
                continue
            self.rows += 1
            if len(row) != len(self.names):
                count += 1
                if count <= 3:
                    ragged.append((number, len(row)))
                continue
            self._take(row)
        sentences = [
            f"has {found} fields in row {number}, but {len(self.names)} columns: correct that row."
            for number, found in ragged
        ]
        if count > 3:
            sentences.append(f"has {count - 3:,} more rows of another length.")
        return sentences

    def _take(self, row: list[str]) -> None:
        if len(self.head) < _HEAD_ROWS:
            self.head.append([cell[:_MAX_CELL] for cell in row[:_SHOWN_COLUMNS]])
        for tally, cell in zip(self.tallies, row, strict=False):
            tally.add(cell)
        if self.classes is not None and self._class_column is not None:
            self.classes[row[self._class_column][:_MAX_CELL]] += 1
            if len(self.classes) > _MAX_CLASSES:
                self.classes = None


class _Tally:
    """Counts of one column."""

    def __init__(self) -> None:
        self.missing = self.numbers = self.texts = 0
        self.least, self.most, self.total = math.inf, -math.inf, 0.0

    def add(self, cell: str) -> None:
        number = _number(cell)
        if not cell.strip():
            self.missing += 1
        elif number is None:
            self.texts += 1
        elif math.isfinite(number):
            self.numbers += 1
            self.total += number
            self.least, self.most = min(self.least, number), max(self.most, number)

    def column(self, name: str) -> Column:
        if self.texts or not self.numbers:
            return Column(name, False, self.missing)
        return Column(name, True, self.missing, self.least, self.most, self.total / self.numbers)


def _store(findings: Findings, part: PartFindings, name: str, table: _Table) -> None:
    if not table.rows:
        findings.warn(f"{name} has column names but no rows.")
    part.items += table.rows
    for label, count in (table.classes or {}).items():
        part.count(label, count)
    if findings.head is None:
        names = [text[:_MAX_CELL] for text in table.names[:_SHOWN_COLUMNS]]
        findings.head = Head(name, names, table.head)
        findings.columns = [tally.column(text) for tally, text in zip(table.tallies, names, strict=True)]
        if len(table.names) > _SHOWN_COLUMNS:
            findings.warn(f"{name} has {len(table.names):,} columns: the first {_SHOWN_COLUMNS} are shown.")


def _check_against_others(findings: Findings, name: str, first: list[str]) -> None:
    """Refuse a table whose number of columns differs from the first one's: scripts read all tables alike."""
    if findings.head is not None and len(findings.head.columns) < _SHOWN_COLUMNS:
        known = len(findings.head.columns)
        if len(first) != known:
            raise _Unfit(
                f"has {file_word(len(first), 'column')}, but {findings.head.file} has {known}: "
                "register tables with other columns as another dataset."
            )


def _delimiter(start: str) -> str:
    """Return the delimiter that splits the first line most often; a comma if none does."""
    line = start.splitlines()[0] if start.splitlines() else ""
    return max(",;\t|", key=line.count)


def _is_header(first: list[str], second: list[str]) -> bool:
    """Return whether the first row has names: distinct words above numbers, or the name of a class column."""
    if any(_number(cell) is not None for cell in first) or len(set(first)) != len(first):
        return False
    return any(_number(cell) is not None for cell in second) or any(
        cell.strip().lower() in _CLASS_NAMES for cell in first
    )


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _ticking(rows: Iterable[list[str]], tick: Callable[[], None]) -> Iterator[list[str]]:
    for number, row in enumerate(rows, start=1):
        if number % _ROWS_PER_TICK == 0:
            tick()
        yield row
