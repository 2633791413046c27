"""Responses that stream files while they are read, and tables as CSV."""

import csv
import io
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import IO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request

__all__ = ["STORED_FILE", "Cell", "csv_chunks", "file_response", "safe_cell", "stored_file_response"]

Cell = str | int | float | None
#: Beginning of text that a spreadsheet would run as a formula, also after blanks.
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r]")
_ROWS_PER_CHUNK = 200
_CHUNK = 256 * 1024
#: Responses of `stored_file_response`, for the API's description.
STORED_FILE = {
    (status, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY, sentence)
    for status, sentence in {
        200: "The file.",
        206: "The part of the file that the header `Range` asks for.",
        416: "The file is shorter than the first byte that the header `Range` asks for. The body is empty.",
    }.items()
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: A single range of bytes; a server may answer any other one with the whole file.
_RANGE = re.compile(r"bytes=([0-9]{1,18})?-([0-9]{1,18})?")


def file_response(
    request: Request, chunks: Iterator[bytes], name: str, content_type: str = "application/zip"
) -> StreamingHttpResponse:
    """Return a download that is sent while it is read."""
    is_async = isinstance(request._request, ASGIRequest)
    response = StreamingHttpResponse(_in_threads(chunks) if is_async else chunks, content_type=content_type)
    response["Content-Disposition"] = content_disposition_header(True, _CONTROL.sub("_", name))
    return response


def stored_file_response(
    request: Request, descriptor: int, name: str, content_type: str = "application/octet-stream"
) -> StreamingHttpResponse:
    """Return a file, or the part of it that the request asks for, with its length. The response closes the file."""
    stream, status = os.fdopen(descriptor, "rb"), os.fstat(descriptor)
    size, tag = status.st_size, f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
    asked = _asked_range(request.headers, tag)
    first, end = (0, size) if asked is None else _within(*asked, size)
    response = file_response(request, _read(stream, first, end), name, content_type)
    response._resource_closers.append(stream.close)  # type: ignore[attr-defined]  # as FileResponse does
    response["Accept-Ranges"] = "bytes"
    response["ETag"] = tag
    response["Content-Length"] = max(0, end - first)
    if asked is not None:
        is_empty = first >= end
        response.status_code = 416 if is_empty else 206
        response["Content-Range"] = f"bytes */{size}" if is_empty else f"bytes {first}-{end - 1}/{size}"
    return response


def _asked_range(headers: Mapping[str, str], tag: str) -> tuple[int | None, int | None] | None:
    """Return the first and the last byte of the range that the request asks for; None for the whole file."""
    found = _RANGE.fullmatch(headers.get("Range", ""))
    if found is None or headers.get("If-Range", tag) != tag:
        return None
    first, last = (int(part) if part else None for part in found.groups())
    if (first is None and last is None) or (first is not None and last is not None and last < first):
        return None
    return first, last


def _within(first: int | None, last: int | None, size: int) -> tuple[int, int]:
    """Return the first byte of a range in a file of this size, and the byte behind the last; without a first byte,
    the range is the last `last` bytes of the file."""
    if first is None:
        return max(0, size - (last or 0)), size
    return first, size if last is None else min(last + 1, size)


def _read(stream: IO[bytes], first: int, end: int) -> Iterator[bytes]:
    """Yield these bytes of a file. A file that has become shorter meanwhile ends early, which the length reveals."""
    with stream:
        stream.seek(first)
        left = end - first
        while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk


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
