"""REST API of `/api/v1/folders/` and `/api/v1/uploads/`, the sources of files for datasets and models."""

from collections.abc import Sequence
from typing import IO, Any

from django.conf import settings
from django.contrib.auth.models import User
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from core import uploads
from core.dataclass_serializers import output_of
from core.errors import field_error
from core.file_sources import given_source
from core.folders import PAGE_SIZE, Listing, listing
from core.models import Upload
from core.rest import Pages, signed_in, validated
from core.text import whole

__all__ = ["Folders", "SourceInput", "UploadDetail", "UploadList", "UploadOutput", "upload_field"]

_OFFSET = "Upload-Offset"
_OCTETS = "application/octet-stream"


FoldersOutput = output_of(
    Listing,
    "FoldersOutput",
    trail=serializers.ListField(child=serializers.ListField(child=serializers.CharField(), min_length=2)),
)


class Folders(GenericAPIView[Any]):
    """Contents of a folder below the allowed roots, folders first."""

    serializer_class = FoldersOutput

    @extend_schema(
        parameters=[
            OpenApiParameter("of", str, enum=["data", "models"], default="data"),
            OpenApiParameter(
                "path", str, description="Folder; default: the root, or a list of the roots if there are several."
            ),
            OpenApiParameter("after", str, description="`next` of the page before."),
            OpenApiParameter("page_size", int, default=PAGE_SIZE),
        ]
    )
    def get(self, request: Request) -> Response:
        given = request.query_params
        roots = {"data": settings.TIDEPOOL_DATA_ROOTS, "models": settings.TIDEPOOL_MODEL_ROOTS}
        if (kind := given.get("of", "data")) not in roots:
            raise field_error("of", "of must be 'data' or 'models'.")
        size = given.get("page_size", str(PAGE_SIZE))
        if not (page_size := whole(size, PAGE_SIZE)):
            raise field_error("page_size", f"A page has 1 to {PAGE_SIZE} entries.")
        found = listing(given.get("path", ""), roots[kind], after=given.get("after", ""), page_size=page_size)
        return Response(FoldersOutput(found).data)


# Base of serializers that register files: `path` and `file` become the `source`. A docstring would go into the API's
# description.
class SourceInput(serializers.Serializer[Any]):
    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {"source": given_source(attrs.pop("path"), attrs.pop("file")), **attrs}


class UploadInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    size_bytes = serializers.IntegerField()


class UploadOutput(serializers.ModelSerializer[Upload]):
    offset = serializers.SerializerMethodField(
        help_text="Number of bytes received, which is the offset of the next piece."
    )
    chunk_bytes = serializers.SerializerMethodField(help_text="Recommended size of a piece in bytes.")

    class Meta:
        model = Upload
        fields = ["id", "name", "size_bytes", "offset", "chunk_bytes", "created_at"]

    def get_offset(self, upload: Upload) -> int:
        return uploads.received(upload)

    def get_chunk_bytes(self, upload: Upload) -> int:
        return uploads.CHUNK_BYTES


class Octets(BaseParser):
    """Parser that returns the body as a stream."""

    media_type = _OCTETS

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream


class UploadList(ListAPIView[Upload]):
    """Your unfinished uploads; POST starts one."""

    serializer_class = UploadOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return Upload.objects.filter(owner=self.request.user.pk)

    @extend_schema(request=UploadInput, responses={201: UploadOutput})
    def post(self, request: Request) -> Response:
        upload = uploads.begin(signed_in(request), **validated(UploadInput, request.data))
        return Response(UploadOutput(upload).data, status=201)


class UploadDetail(GenericAPIView[Upload]):
    """One upload: GET returns its progress, PATCH adds a piece, DELETE removes it."""

    serializer_class = UploadOutput
    parser_classes = [Octets]

    def get(self, request: Request, upload: int) -> Response:
        return Response(UploadOutput(uploads.find_upload(signed_in(request), upload)).data)

    @extend_schema(
        request={_OCTETS: OpenApiTypes.BINARY},
        parameters=[
            OpenApiParameter(
                _OFFSET, int, OpenApiParameter.HEADER, required=True, description="Offset of the piece in bytes."
            )
        ],
    )
    def patch(self, request: Request, upload: int) -> Response:
        row = uploads.find_upload(signed_in(request), upload)
        offset = whole(request.headers.get(_OFFSET, ""))
        if offset is None:
            raise field_error("offset", f"Send the byte offset of the piece in the header {_OFFSET}.")
        content: Any = request.data
        if not hasattr(content, "read"):
            raise field_error("offset", uploads.EMPTY_PIECE)
        uploads.append(row, offset, content)
        return Response(UploadOutput(row).data)

    @extend_schema(responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, upload: int) -> Response:
        uploads.discard(uploads.find_upload(signed_in(request), upload))
        return Response(status=204)


def upload_field(user: User, suffixes: Sequence[str]) -> dict[str, Any]:
    """Return the context of `templates/_upload_field.html`: limits, and the user's uploads that the field accepts."""
    kept = Upload.objects.filter(owner=user).order_by("-id")
    return {
        "uploads": [UploadOutput(upload).data for upload in kept if upload.name.lower().endswith(tuple(suffixes))],
        "suffixes": ",".join(suffixes),
        "max_bytes": settings.TIDEPOOL_UPLOAD_MAX_BYTES,
        "max_files": settings.TIDEPOOL_UPLOAD_MAX_FILES,
    }
