"""Parts of requests with a model's files: the files, the field `data`, and the check before an upload is read."""

from django.core.files.uploadedfile import UploadedFile
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.body_limits import largest_body
from core.errors import UserError
from core.file_sources import Upload
from core.rest import PARSERS_WITH_FILES
from wmla.multipart import NAMELESS, FilesWithoutNames

__all__ = ["PARSERS", "PREFLIGHT", "data_field", "preflight_answer", "uploaded_files"]

#: Key that wmla/preflight.py sets in an ASGI scope to the announced size in bytes: check a submission by its URL alone,
#: without reading the body.
PREFLIGHT = "tidepool.preflight"
#: Parsers of views that take a model's files.
PARSERS = [FilesWithoutNames if parser is MultiPartParser else parser for parser in PARSERS_WITH_FILES]
_DATA = "data"


def preflight_answer(request: Request) -> Response | None:
    """Return the answer to a request that is checked before its upload is read; None: read it.

    Raises UserError if the announced upload is too large.
    """
    announced = getattr(request._request, "scope", {}).get(PREFLIGHT)
    if announced is None:
        return None
    if announced > largest_body():
        raise UserError(f"The upload has {announced:,} bytes: send at most {largest_body():,} bytes.")
    return Response(status=204)


def data_field(request: Request, max_bytes: int) -> str:
    """Return the form's field `data`, which some clients send as a file."""
    value = request.data.get(_DATA, "") if hasattr(request.data, "get") else ""
    if isinstance(value, UploadedFile):
        return str(value.read(max_bytes), "utf-8", "replace")
    return value if isinstance(value, str) else ""


def uploaded_files(request: Request) -> list[Upload]:
    """Return the model's files: every part but `data`, whatever its name. A file's name may be ""."""
    sent = [file for part, files in request.FILES.lists() if part != _DATA for file in files]
    named = {file: "" if file.name == NAMELESS else file.name or "" for file in sent}
    return [Upload(name, file.file) for file, name in named.items() if name or file.size]
