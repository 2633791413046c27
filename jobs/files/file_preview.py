"""The beginning of one of a run's files, as a page can show it: a picture, a table, or text."""

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

#: What a picture begins with, and what browsers call it. SVG is text: it could hold a script.
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
    #: It can be shown by `open_picture`.
    is_picture: bool = False
    #: Rows of a table, with the first as its head; [] where it is none.
    rows: list[list[str]] = field(default_factory=list)
    #: None: it is no text.
    text: str | None = None
    is_cut: bool = False


def file_preview(job: Job, path: str) -> FilePreview:
    """Raises NotFound where there is no such file."""
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
    """The file, to be closed, and its content type. Raises NotFound where it is no picture."""
    stream = os.fdopen(open_result(job, path), "rb")
    kind = _picture_type(stream)
    if kind is None or os.fstat(stream.fileno()).st_size > _MAX_PICTURE_BYTES:
        stream.close()
        raise NotFound("This file is no picture that can be shown: download it.")
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
        lines = lines[:-1]  # of the last one only a part was read
    try:
        return [row[:_MAX_COLUMNS] for row in islice(csv.reader(lines, delimiter=delimiter), _MAX_ROWS + 1)]
    except csv.Error:  # a field without an end, or a NUL: it is shown as text
        return []
