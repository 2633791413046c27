"""`/api/v1/models/`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from models_registry import actions, queries
from models_registry.api.serializers import ModelInput, ModelOutput, ModelVersionOutput, RegisteredOutput
from models_registry.models import RegisteredModel, RegisteredModelVersion
from webapp.lib.rest import PARSERS_WITH_FILES, NamedPages, NumberedPages, found, signed_in

__all__ = ["ModelDetail", "ModelList", "ModelVersionList"]


class ModelList(ListAPIView[RegisteredModel]):
    """All models; POST registers one, or the next version of one's own."""

    serializer_class = ModelOutput
    pagination_class = NamedPages
    parser_classes = PARSERS_WITH_FILES

    def get_queryset(self) -> Any:
        return queries.models()

    @extend_schema(request=ModelInput, responses={201: RegisteredOutput})
    def post(self, request: Request) -> Response:
        given = ModelInput(data=request.data)
        given.is_valid(raise_exception=True)
        version = actions.register(signed_in(request), given.registration())
        return Response(RegisteredOutput(queries.find_model(version.model.name)).data, status=201)


class ModelDetail(GenericAPIView[RegisteredModel]):
    serializer_class = ModelOutput

    def get(self, request: Request, reference: str) -> Response:
        return Response(ModelOutput(found(queries.find_model(reference), "model")).data)


class ModelVersionList(ListAPIView[RegisteredModelVersion]):
    serializer_class = ModelVersionOutput
    pagination_class = NumberedPages

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return RegisteredModelVersion.objects.none()
        return queries.versions(found(queries.find_model(self.kwargs["reference"]), "model"))
