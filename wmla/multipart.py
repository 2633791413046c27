"""Parser of submissions whose file has no file name.

IBM's Python client for WMLA sends the part `file` with a content type only. To Django, a part without a file name is a
text field: its size is limited, and bytes of an archive that are not UTF-8 would be replaced. The name that is missing
is therefore added to the part's header before Django reads it.
"""

from collections.abc import Mapping
from typing import IO, Any

from django.utils.http import parse_header_parameters
from rest_framework.parsers import MultiPartParser

__all__ = ["NAMELESS", "FilesWithoutNames", "NamedFiles"]

#: File name of a part `file` that was sent without one.
NAMELESS = "file-without-name"
_PART = "file"
_HEADER_END = b"\r\n\r\n"
#: Django accepts no longer header.
_MAX_HEADER_BYTES = 16 * 1024


class FilesWithoutNames(MultiPartParser):
    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        boundary = parse_header_parameters(media_type or "")[1].get("boundary", "")
        named: Any = NamedFiles(stream, boundary.encode()) if boundary else stream
        return super().parse(named, media_type, parser_context)


class NamedFiles:
    """A multipart body as a stream, in which each part `file` has a file name."""

    def __init__(self, stream: IO[bytes], boundary: bytes) -> None:
        self._stream = stream
        self._delimiter = b"--" + boundary + b"\r\n"
        #: Bytes that may be the beginning of a delimiter or of a header, and are returned once they are complete.
        self._waiting = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes; b"" at the end. size: number of bytes to read from the body at once."""
        while chunk := self._stream.read(size):
            self._waiting += chunk
            if ready := self._take():
                return ready
        rest, self._waiting = self._waiting, b""
        return rest

    def _take(self) -> bytes:
        """Return the bytes that are complete, and keep the others."""
        body, taken, position = self._waiting, [], 0
        while (found := body.find(self._delimiter, position)) >= 0:
            start = found + len(self._delimiter)
            end = body.find(_HEADER_END, start)
            if end < 0 and len(body) - start <= _MAX_HEADER_BYTES:
                break
            header = body[start:end] if end >= 0 else b""
            taken += [body[position:start], _with_file_name(header)]
            position = start + len(header)
        kept_from = found if found >= 0 else max(position, len(body) - len(self._delimiter) + 1)
        self._waiting = body[kept_from:]
        return b"".join([*taken, body[position:kept_from]])


def _with_file_name(header: bytes) -> bytes:
    """Return the header with a file name, if it describes a part `file` that has none."""
    return b"\r\n".join(
        line + b'; filename="%s"' % NAMELESS.encode() if _lacks(line) else line for line in header.split(b"\r\n")
    )


def _lacks(line: bytes) -> bool:
    """Return whether the line of a header describes a part `file` without a file name."""
    try:
        value, parameters = parse_header_parameters(line.decode())
    except ValueError:
        return False
    is_disposition = value.startswith("content-disposition:")
    return is_disposition and parameters.get("name") == _PART and not parameters.get("filename")
