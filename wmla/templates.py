"""`/modeltemplates`: our templates, which WMLA registers by "Add Location"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import file_response
from core.errors import NotFound, UserError, field_error
from core.folders import regular_files
from core.rest import signed_in, validated
from core.sources import Source
from core.text import shown_text
from core.time import iso
from models_registry import actions, queries
from models_registry.models import ModelTemplate
from wmla.lists import LIST_PARAMETERS, part_asked_for
from wmla.view import WmlaView, json_body

__all__ = ["Template", "TemplateFile", "TemplateFiles", "Templates", "code_file", "code_files", "template_named"]

#: Which script of a folder is run: WMLA runs the first for elastic training, the second for everything else.
_ENTRY_POINTS = ("elastic-main.py", "main.py")
_CHUNK = 256 * 1024


class WmlaTemplateInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    path = serializers.CharField(max_length=4096, help_text="Below an allowed model root.")
    framework = serializers.CharField(max_length=64, help_text="PyTorch.")
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True, allow_null=True)
    entryPoint = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Ours. Absent: elastic-main.py, else main.py."
    )


class WmlaTemplateChange(serializers.Serializer[Any]):
    path = serializers.CharField(max_length=4096, default="", allow_blank=True)
    framework = serializers.CharField(max_length=64, default="", allow_blank=True)
    description = serializers.CharField(max_length=10_000, default=None, allow_blank=True, allow_null=True)


class WmlaTemplateOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    path = serializers.CharField()
    framework = serializers.CharField()
    frameworkVersion = serializers.CharField(allow_null=True, help_text="That of the hosts.")
    description = serializers.CharField()
    entryPoint = serializers.CharField(help_text="Ours: the script that is run.")
    user = serializers.CharField()
    createTime = serializers.CharField()


class WmlaFileOutput(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Relative to the folder.")
    size = serializers.IntegerField(help_text="Bytes.")


class Templates(WmlaView):
    @extend_schema(
        parameters=[OpenApiParameter("framework", str), *LIST_PARAMETERS], responses=WmlaTemplateOutput(many=True)
    )
    def get(self, request: Request) -> Response:
        """List all templates by name, or those of one framework."""
        rows = queries.templates().order_by("name")
        if framework := request.query_params.get("framework", ""):
            rows = rows.filter(framework__iexact=framework.replace("\0", ""))
        return Response([_as_json(row) for row in part_asked_for(request, rows)])

    @extend_schema(request=WmlaTemplateInput, responses={201: WmlaTemplateOutput})
    def post(self, request: Request) -> Response:
        """Take over the code of a folder that holds elastic-main.py or main.py."""
        values = validated(WmlaTemplateInput, json_body(request))
        asked = (values["entryPoint"],) if values["entryPoint"] else _ENTRY_POINTS
        template = _added(request, values, *asked)
        return Response(_as_json(template), status=201)


class _TemplateView(WmlaView):
    def template(self) -> ModelTemplate:
        return template_named(self.kwargs["template"])


class Template(_TemplateView):
    @extend_schema(responses=WmlaTemplateOutput)
    def get(self, request: Request, template: str) -> Response:
        return Response(_as_json(self.template()))

    @extend_schema(request=WmlaTemplateChange, responses=WmlaTemplateOutput)
    def put(self, request: Request, template: str) -> Response:
        """Take the files again, as they are at its path now. Models made from it keep theirs."""
        row = self.template()
        given = validated(WmlaTemplateChange, json_body(request))
        for name, value in given.items():
            if value not in (None, "", getattr(row, name)):
                raise field_error(name, f"The {name} of a template stays as it is: add another template.")
        return Response(_as_json(actions.take_again(row, signed_in(request))))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, template: str) -> HttpResponse:
        """Delete the template. Refused (409) if a model was made from it."""
        actions.delete_template(self.template(), signed_in(request))
        return HttpResponse(status=204)


class TemplateFiles(_TemplateView):
    @extend_schema(responses=WmlaFileOutput(many=True))
    def get(self, request: Request, template: str) -> Response:
        return Response(code_files(self.template().folder))


class TemplateFile(_TemplateView):
    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, template: str, file: str) -> StreamingHttpResponse:
        return code_file(request, self.template().folder, file)


def template_named(name: str) -> ModelTemplate:
    template = queries.find_template(name)
    if template is None:
        raise NotFound(f"Model template {shown_text(name)} not found: list them with GET /modeltemplates.")
    return template


def code_files(folder: Path) -> list[dict[str, Any]]:
    return [{"name": file.name, "size": file.size_bytes} for file in queries.code_files(folder)]


def code_file(request: Request, folder: Path, name: str) -> StreamingHttpResponse:
    """Find one of the regular files below the folder; any other name is refused."""
    file = next((path for found, path in regular_files(folder) if found == name), None)
    if file is None:
        raise NotFound(f"File {shown_text(name)} not found: the list beside it names those there are.")
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in name)
    return file_response(request, _chunks(file), safe, "text/plain; charset=utf-8")


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _added(request: Request, values: dict[str, Any], *entry_points: str) -> ModelTemplate:
    """Add a template by the first of these scripts that the folder holds."""
    first, *others = entry_points
    addition = actions.TemplateAddition(
        name=values["name"],
        source=Source(path=values["path"]),
        entry_point=first,
        framework=_framework(values["framework"]),
        description=values["description"] or "",
    )
    try:
        return actions.add_template(signed_in(request), addition)
    except UserError as error:
        if not others or "entry_point" not in error.fields:
            raise
    return _added(request, values, *others)


def _framework(name: str) -> str:
    """Return the framework in our spelling, if there is such."""
    return next((known for known in ModelTemplate.Framework.values if known.lower() == name.lower()), name)


def _as_json(template: ModelTemplate) -> dict[str, Any]:
    return {
        "name": template.name,
        "path": template.path,
        "framework": template.framework,
        "frameworkVersion": None,
        "description": template.description,
        "entryPoint": template.entry_point,
        "user": template.owner.get_username(),
        "createTime": iso(template.created_at),
    }
