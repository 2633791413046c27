"""Sources of files: a path below an allowed root, or an upload that is stored there."""

import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from core.archive import Limits, store_uploads
from core.errors import UserError
from core.folders import resolve_under

__all__ = ["Source", "Upload", "given_source", "new_upload_folder", "obtained", "slug", "upload_limits"]


@dataclass(frozen=True)
class Upload:
    name: str
    content: IO[bytes]


@dataclass(frozen=True)
class Source:
    """A path, or an upload."""

    path: str = ""
    upload: Upload | None = None
    #: Further uploads that are stored beside the first one.
    more: Sequence[Upload] = ()
    #: Whether an upload that consists of a single folder is replaced by the folder's content.
    unwrap: bool = False


def given_source(path: str, file: Any) -> Source:
    """Return the source in a form or a request. `file`: Django's UploadedFile or None."""
    return Source(path, Upload(file.name, file.file) if file else None)


@contextmanager
def obtained(source: Source, roots: Sequence[Path], *, label: str, single: Sequence[str]) -> Iterator[Path]:
    """Yield the folder with the files. If the body fails, an uploaded one is removed."""
    if bool(source.path) == bool(source.upload):
        sentence = "Enter either a path on the server or a file to upload."
        raise UserError(sentence, fields={"path": [sentence]})
    if source.upload is None:
        yield resolve_under(source.path, roots)
        return
    folder = new_upload_folder(roots, label)
    uploads = [(upload.content, upload.name) for upload in (source.upload, *source.more)]
    store_uploads(uploads, folder, upload_limits(), single=single, unwrap=source.unwrap)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def new_upload_folder(roots: Sequence[Path], label: str) -> Path:
    """Return a new path into which an upload can be unpacked."""
    return roots[0] / "uploads" / f"{slug(label)}-{secrets.token_hex(6)}"


def slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:60] or "upload"


def upload_limits() -> Limits:
    return Limits(max_bytes=settings.TIDEPOOL_UPLOAD_MAX_BYTES, max_files=settings.TIDEPOOL_UPLOAD_MAX_FILES)
