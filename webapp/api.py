"""`/api/v1/`: joins the apps' endpoints."""

from functools import cache
from threading import Lock
from typing import Any, ClassVar

from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2
from drf_spectacular.utils import OpenApiParameter, extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.dataclass_serializers import output_of
from core.files_api import Folders, UploadDetail, UploadList
from core.rest import signed_in
from webapp.job_streams.view import JobStream
from webapp.search import Hit, find

__all__ = ["urlpatterns"]


class SearchOutput(serializers.Serializer[Any]):
    results = output_of(Hit, kind=serializers.ChoiceField(["job", "study", "dataset", "model", "report", "help"]))(
        many=True
    )


class Search(GenericAPIView[Any]):
    """Jobs, studies, datasets, models and reports by a part of their name, newest first, and headings of the documents.

    A few of each kind."""

    serializer_class = SearchOutput
    pagination_class = None

    @extend_schema(parameters=[OpenApiParameter("q", str, description="Part of a name, or a job's number.")])
    def get(self, request: Request) -> Response:
        hits = find(signed_in(request), request.query_params.get("q", ""))
        return Response(SearchOutput({"results": hits}).data)


class _Described(SchemaGenerator):
    """Describes the API once per process: it takes seconds, and is the same for all."""

    #: Held meanwhile: drf-spectacular loads its extensions, which two threads cannot at once.
    _describing: ClassVar = Lock()

    def get_schema(self, request: Request | None = None, public: bool = False) -> Any:
        with self._describing:
            return _description(public)


@cache
def _description(public: bool) -> Any:
    return SchemaGenerator().get_schema(public=public)  # type: ignore[no-untyped-call]


class Schema(SpectacularAPIView):
    """This API's own description."""

    generator_class = _Described
    #: Renderers: OpenAPI's own media type, and plain JSON for clients that ask for no other.
    renderer_classes = [OpenApiJsonRenderer, OpenApiJsonRenderer2]


@extend_schema(exclude=True)
class UnknownAddress(APIView):
    """View of unknown URLs, which returns errors in the API's format."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise NotFound


_v1: list[URLPattern | URLResolver] = [
    path("", include("accounts.api")),
    path("", include("alerts.api")),
    path("", include("core.audit.api")),
    path("jobs/<int:job>/stream/", JobStream.as_view(), name="job-stream"),
    path("search/", Search.as_view(), name="search"),
    path("schema/", Schema.as_view(), name="schema"),
    path("folders/", Folders.as_view(), name="folders"),
    path("uploads/", UploadList.as_view(), name="uploads"),
    path("uploads/<int:upload>/", UploadDetail.as_view(), name="upload"),
    path("", include("datasets.api")),
    path("", include("models_registry.api")),
    path("", include("workers.api")),
    path("", include("capacity.api")),
    path("", include("jobs.api.urls")),
    path("", include("insights.api.urls")),
    path("", include("usage.api")),
    path("", include("reports.api")),
    path("", include("studies.api")),
    path("", include("replay.api")),
]

urlpatterns = [
    path("v1/", include((_v1, "api"))),
    re_path("", UnknownAddress.as_view()),
]
