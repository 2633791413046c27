"""ETags of the REST API: a GET sends one of the values that a PATCH or PUT can change, and `If-Match` sends it back.

A view with ETags has `has_etag = True`, so that the API's description names the header and its refusal.
"""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from core.edits import UNSEEN, Seen, etag_of

__all__ = ["IF_MATCH", "seen_in", "with_etag"]

IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="`ETag` of the GET on which the change is based: 412 if the values have been changed since. Without "
    "the header, the given values are stored in any case.",
)


def seen_in(request: Request) -> Seen:
    """Return the version that the request is based on, as far as it says."""
    tags = [tag.strip() for tag in request.headers.get("If-Match", "").split(",") if tag.strip()]
    if not tags or "*" in tags:
        return UNSEEN
    # A proxy that compresses responses marks their ETags as weak.
    return Seen(etags=tuple(tag.removeprefix("W/") for tag in tags))


def with_etag(response: Response, values: Mapping[str, Any]) -> Response:
    response["ETag"] = etag_of(values)
    return response
