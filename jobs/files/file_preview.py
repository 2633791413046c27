"""Preview of a result file for pages: a picture, a table, or the beginning of a text."""

import csv
import os
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

from core.errors import NotFound
from jobs.files.result_files import open_result
from jobs.models import Job
from models_registry.queries import text_of

__all__ = ["FilePreview", "file_preview", "open_picture"]

#: Magic numbers of pictures and their content types. SVG is excluded: it may contain a script.
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_WEBP = (b"RIFF", b"WEBP")
_MAX_PICTURE_BYTES = 32 * 1024**2
_TABLES = {".csv": ",", ".tsv": "\t"}
_MAX_ROWS = 200
_MAX_COLUMNS = 50


@dataclass(frozen=True)
class FilePreview:
    path: str
    size_bytes: int
    #: Whether `open_picture` can show it.
    is_picture: bool = False
    #: Rows of a table, beginning with its head; [] for other files.
    rows: list[list[str]] = field(default_factory=list)
    #: Beginning of the text; None: not a text file.
    text: str | None = None
    is_cut: bool = False


def file_preview(job: Job, path: str) -> FilePreview:
    """Return the preview. Raises NotFound if there is no such file."""
    with os.fdopen(open_result(job, path), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if _picture_type(stream) and size <= _MAX_PICTURE_BYTES:
            return FilePreview(path, size, is_picture=True)
        text = text_of(stream)
        is_cut = stream.tell() < size
    delimiter = _TABLES.get(os.path.splitext(path)[1].lower())
    if text is None or delimiter is None:
        return FilePreview(path, size, text=text, is_cut=is_cut)
    rows = _rows(text, delimiter, is_cut=is_cut)
    return FilePreview(path, size, rows=rows[:_MAX_ROWS], text=text, is_cut=is_cut or len(rows) > _MAX_ROWS)


def open_picture(job: Job, path: str) -> tuple[IO[bytes], str]:
    """Return the open file, which the caller closes, and its content type. Raises NotFound for other files."""
    stream = os.fdopen(open_result(job, path), "rb")
    kind = _picture_type(stream)
    if kind is None or os.fstat(stream.fileno()).st_size > _MAX_PICTURE_BYTES:
        stream.close()
        raise NotFound("This file is not an image that can be shown: download it.")
    return stream, kind


def _picture_type(stream: IO[bytes]) -> str | None:
    head = stream.read(16)
    stream.seek(0)
    if head[:4] == _WEBP[0] and head[8:12] == _WEBP[1]:
        return "image/webp"
    return next((kind for sign, kind in _PICTURES if head.startswith(sign)), None)


def _rows(text: str, delimiter: str, *, is_cut: bool) -> list[list[str]]:
    lines = text.splitlines()
    if is_cut:
        lines = lines[:-1]  # the last line is incomplete
    try:
        return [row[:_MAX_COLUMNS] for row in islice(csv.reader(lines, delimiter=delimiter), _MAX_ROWS + 1)]
    except csv.Error:  # an unterminated field or a NUL: shown as text
        return []
