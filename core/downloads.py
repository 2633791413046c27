"""Files that are sent while they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from rest_framework.request import Request

__all__ = ["file_response"]


def file_response(
    request: Request, chunks: Iterator[bytes], name: str, content_type: str = "application/zip"
) -> StreamingHttpResponse:
    """A file to be saved, sent while it is read. `name` is one that a header can hold."""
    is_async = isinstance(request._request, ASGIRequest)
    response = StreamingHttpResponse(_in_threads(chunks) if is_async else chunks, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def _in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """An ASGI server would collect a plain iterator in memory before it sends anything."""
    following = sync_to_async(lambda: next(chunks, None))
    while (chunk := await following()) is not None:
        yield chunk
