"""Shows a version's sample images: only bytes that are a picture, and in a way that no browser runs."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from django.conf import settings
from django.http import HttpResponse

from core.errors import NotFound, UserError
from core.folders import resolve_under
from datasets.inspection.pixels import CONTENT_TYPES, image_type
from datasets.models import DatasetVersion

__all__ = ["sample_response"]

_MAX_BYTES = 16 * 1024**2


def sample_response(version: DatasetVersion, index: int) -> HttpResponse:
    """The picture; the type is judged by its bytes, not by its name."""
    if index >= len(version.samples):
        raise NotFound("There is no such sample: the dataset may have been checked again. Load the page again.")
    sample = version.samples[index]
    content = base64.b64decode(sample["png"]) if sample["png"] else _content(version, sample["file"])
    kind = image_type(content)
    if kind is None:
        raise NotFound("The file is no picture any more: register the dataset again.")
    response = HttpResponse(content, content_type=CONTENT_TYPES[kind])
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, max-age=3600"
    return response


def _content(version: DatasetVersion, name: str) -> bytes:
    base = Path(version.path)
    gone = NotFound("The file is gone, or may not be read: register the dataset again.")
    try:
        # Whoever owns the folder may have put a link there since it was checked.
        file = resolve_under(str(base if base.is_file() else base / name), settings.TIDEPOOL_DATA_ROOTS)
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (UserError, OSError) as error:
        raise gone from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise gone
        return stream.read(_MAX_BYTES)
