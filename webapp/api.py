"""`/api/v1/`: joins the apps' endpoints, and answers who is asking."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.files_api import Folders, UploadDetail, UploadList
from webapp.lib.rest import signed_in
from webapp.models import ApiToken
from webapp.search import find
from webapp.tokens import create_token, withdraw_token

__all__ = ["urlpatterns"]


class MeOutput(serializers.ModelSerializer[User]):
    class Meta:
        model = User
        fields = ["id", "username", "is_staff"]


class TokenOutput(serializers.ModelSerializer[ApiToken]):
    token = serializers.CharField(help_text="Shown only now.")

    class Meta:
        model = ApiToken
        fields = ["token"]


class TokenState(serializers.Serializer[Any]):
    created_at = serializers.DateTimeField(allow_null=True, help_text="null: there is no token.")


class Me(GenericAPIView[User]):
    """Who is asking."""

    serializer_class = MeOutput

    def get(self, request: Request) -> Response:
        return Response(MeOutput(signed_in(request)).data)


class Token(GenericAPIView[ApiToken]):
    """The bearer token of the user who asks; each has at most one."""

    serializer_class = TokenState

    def get(self, request: Request) -> Response:
        token = ApiToken.objects.filter(user=signed_in(request)).first()
        return Response(TokenState({"created_at": token and token.created_at}).data)

    @extend_schema(request=None, responses={201: TokenOutput})
    def post(self, request: Request) -> Response:
        """Make a new token; the earlier one ends."""
        return Response({"token": create_token(signed_in(request))}, status=201)

    @extend_schema(responses={204: OpenApiResponse(description="It is withdrawn.")})
    def delete(self, request: Request) -> Response:
        withdraw_token(signed_in(request))
        return Response(status=204)


class HitOutput(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["job", "dataset", "model"])
    id = serializers.IntegerField()
    name = serializers.CharField()
    note = serializers.CharField(help_text="What tells it from others of the same name.")
    address = serializers.CharField(help_text="Of its page.")


class SearchOutput(serializers.Serializer[Any]):
    results = HitOutput(many=True)


class Search(GenericAPIView[Any]):
    """Jobs, datasets and models by a part of their name, the newest first, a few of each kind."""

    serializer_class = SearchOutput
    pagination_class = None

    @extend_schema(parameters=[OpenApiParameter("q", str, description="Part of a name, or a job's number.")])
    def get(self, request: Request) -> Response:
        hits = find(signed_in(request), request.query_params.get("q", ""))
        return Response({"results": HitOutput(hits, many=True).data})


class Schema(SpectacularAPIView):
    """This API's own description."""

    renderer_classes = [OpenApiJsonRenderer]


@extend_schema(exclude=True)
class Nothing(APIView):
    """An unknown address answers in the same shape as everything else."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise NotFound


_v1: list[URLPattern | URLResolver] = [
    path("me/", Me.as_view(), name="me"),
    path("me/token/", Token.as_view(), name="token"),
    path("search/", Search.as_view(), name="search"),
    path("schema/", Schema.as_view(), name="schema"),
    path("folders/", Folders.as_view(), name="folders"),
    path("uploads/", UploadList.as_view(), name="uploads"),
    path("uploads/<int:upload>/", UploadDetail.as_view(), name="upload"),
    path("", include("datasets.api.urls")),
    path("", include("models_registry.api.urls")),
    path("", include("workers.api.urls")),
    path("", include("jobs.api.urls")),
]

urlpatterns = [
    path("v1/", include((_v1, "api"))),
    re_path("", Nothing.as_view()),
]
