"""Tables as CSV that spreadsheets may open: what people wrote is text there, never a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Cell", "csv_chunks", "safe_cell"]

Cell = str | int | float | None
#: Spreadsheets run what begins so, after blanks as well.
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r]")
_ROWS_PER_CHUNK = 200


def safe_cell(value: Cell) -> Cell:
    """A leading apostrophe makes a formula text; numbers stay numbers. The same rule as `csvCell` in figure.js."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_chunks(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    """The file piece by piece, while the rows are read."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(head)
    for number, row in enumerate(rows, start=1):
        writer.writerow([safe_cell(value) for value in row])
        if number % _ROWS_PER_CHUNK == 0:
            yield _taken(buffer)
    yield _taken(buffer)


def _taken(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    # Names may have halves of characters that UTF-8 cannot hold.
    return text.encode("utf-8", errors="replace")
