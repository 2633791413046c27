"""Responses that stream files while they are read, and tables as CSV."""

import csv
import io
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from rest_framework.request import Request

__all__ = ["Cell", "csv_chunks", "file_response", "safe_cell"]

Cell = str | int | float | None
#: Beginning of text that a spreadsheet would run as a formula, also after blanks.
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r]")
_ROWS_PER_CHUNK = 200


def file_response(
    request: Request, chunks: Iterator[bytes], name: str, content_type: str = "application/zip"
) -> StreamingHttpResponse:
    """Return a download that is sent while it is read. `name` must be valid in a header."""
    is_async = isinstance(request._request, ASGIRequest)
    response = StreamingHttpResponse(_in_threads(chunks) if is_async else chunks, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def _in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Iterate over the chunks in threads; an ASGI server would collect a plain iterator in memory first."""
    following = sync_to_async(lambda: next(chunks, None))
    while (chunk := await following()) is not None:
        yield chunk


def safe_cell(value: Cell) -> Cell:
    """Return the cell, with an apostrophe before a formula. The same rule as `csvCell` in figure.js."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_chunks(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    """Yield the CSV file in pieces, while the rows are read."""
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
    # Names may have lone surrogates, which UTF-8 cannot encode.
    return text.encode("utf-8", errors="replace")
