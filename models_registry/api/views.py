"""`/api/v1/templates/` and `/api/v1/models/`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import PARSERS_WITH_FILES, NamedPages, NumberedPages, found, signed_in
from models_registry import actions, queries
from models_registry.actions import ModelRegistration
from models_registry.api import serializers
from models_registry.api.serializers import ModelInput, ModelOutput, ModelVersionOutput, RegisteredOutput
from models_registry.compare import changed_files, changed_values
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion

__all__ = [
    "ModelChanges",
    "ModelClone",
    "ModelDetail",
    "ModelFiles",
    "ModelList",
    "ModelVersionList",
    "TemplateDetail",
    "TemplateFiles",
    "TemplateList",
    "TemplateTakeAgain",
]


class TemplateList(ListAPIView[ModelTemplate]):
    """All templates; POST adds one from files on the server or an upload."""

    serializer_class = serializers.TemplateOutput
    pagination_class = NamedPages
    parser_classes = PARSERS_WITH_FILES

    def get_queryset(self) -> Any:
        return queries.templates()

    @extend_schema(request=serializers.TemplateInput, responses={201: serializers.TemplateOutput})
    def post(self, request: Request) -> Response:
        given = serializers.TemplateInput(data=request.data)
        given.is_valid(raise_exception=True)
        template = actions.add_template(signed_in(request), given.addition())
        return Response(_template_output(template.name), status=201)


class TemplateView(GenericAPIView[ModelTemplate]):
    serializer_class: Any = serializers.TemplateOutput

    def template(self) -> ModelTemplate:
        template: ModelTemplate = found(queries.find_template(self.kwargs["reference"]), "template")
        return template


class TemplateDetail(TemplateView):
    def get(self, request: Request, reference: str) -> Response:
        return Response(serializers.TemplateOutput(self.template()).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Refused (409) while a model was made of it."""
        actions.delete_template(self.template(), signed_in(request))
        return Response(status=204)


class TemplateTakeAgain(TemplateView):
    @extend_schema(request=None)
    def post(self, request: Request, reference: str) -> Response:
        """Take the files over as they are at its path now. Models made of it before keep theirs."""
        template = actions.take_again(self.template(), signed_in(request))
        return Response(_template_output(template.name))


class TemplateFiles(TemplateView):
    serializer_class = serializers.FilesOutput

    @extend_schema(parameters=[serializers.FileQuery])
    def get(self, request: Request, reference: str) -> Response:
        """The files, and the text of one."""
        return _files(self.template().folder, _file_query(request)["file"])


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


class ModelView(GenericAPIView[RegisteredModel]):
    serializer_class: Any = ModelOutput

    def model(self) -> RegisteredModel:
        model: RegisteredModel = found(queries.find_model(self.kwargs["reference"]), "model")
        return model

    def version(self, number: int | None) -> RegisteredModelVersion:
        rows = queries.versions(self.model())
        version = rows.first() if number is None else rows.filter(number=number).first()
        answer: RegisteredModelVersion = found(version, "version")
        return answer


class ModelDetail(ModelView):
    def get(self, request: Request, reference: str) -> Response:
        return Response(ModelOutput(self.model()).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """With all its versions. Refused (409) while a training was started with one of them."""
        actions.delete_model(self.model(), signed_in(request))
        return Response(status=204)


class ModelClone(ModelView):
    @extend_schema(request=serializers.CloneInput, responses={201: RegisteredOutput})
    def post(self, request: Request, reference: str) -> Response:
        """A model of one's own, with the code and the settings of the newest version."""
        given = serializers.CloneInput(data=request.data)
        given.is_valid(raise_exception=True)
        newest = self.version(None)
        registration = ModelRegistration(
            name=given.validated_data["name"],
            source=newest,
            framework=newest.framework,
            engine=newest.engine,
            default_dataset=newest.default_dataset,
            settings=newest.settings,
            parameters=newest.parameters,
            compat=newest.compat,
            description=newest.model.description,
        )
        version = actions.register(signed_in(request), registration)
        return Response(RegisteredOutput(queries.find_model(version.model.name)).data, status=201)


class ModelVersionList(ListAPIView[RegisteredModelVersion]):
    serializer_class = ModelVersionOutput
    pagination_class = NumberedPages

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return RegisteredModelVersion.objects.none()
        return queries.versions(found(queries.find_model(self.kwargs["reference"]), "model"))


class ModelChanges(ModelView):
    serializer_class = serializers.ChangesOutput

    @extend_schema(parameters=[serializers.ChangesQuery])
    def get(self, request: Request, reference: str) -> Response:
        """What changed from one version to another."""
        given = serializers.ChangesQuery(data=request.query_params)
        given.is_valid(raise_exception=True)
        new = self.version(given.validated_data["new"])
        old = self.version(given.validated_data["old"] or max(1, new.number - 1))
        values = [asdict(change) for change in changed_values(old, new)]
        files = [asdict(change) for change in changed_files(old.folder, new.folder)]
        return Response({"old": old.number, "new": new.number, "values": values, "files": files})


class ModelFiles(ModelView):
    serializer_class = serializers.FilesOutput

    @extend_schema(parameters=[serializers.FileQuery])
    def get(self, request: Request, reference: str) -> Response:
        """The files of a version, and the text of one."""
        given = _file_query(request)
        return _files(self.version(given["version"]).folder, given["file"])


def _template_output(name: str) -> Any:
    return serializers.TemplateOutput(queries.find_template(name)).data


def _file_query(request: Request) -> dict[str, Any]:
    given = serializers.FileQuery(data=request.query_params)
    given.is_valid(raise_exception=True)
    values: dict[str, Any] = given.validated_data
    return values


def _files(folder: Path, name: str) -> Response:
    shown = found(queries.shown_file(folder, name), "file") if name else None
    listed = [asdict(file) for file in queries.code_files(folder)]
    return Response({"files": listed, "text": shown.text if shown else None})
