"""`/modeltemplates`: model templates, which WMLA registers by "Add Location"."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import file_response
from core.errors import NotFound, UserError, field_error
from core.file_sources import Source
from core.folders import regular_files
from core.rest import signed_in, validated
from core.text import shown_text
from core.time import iso
from models_registry import actions, queries
from models_registry.models import ModelTemplate
from wmla.answer_fields import Text, Whole
from wmla.base_view import LIST_PARAMETERS, WmlaView, json_body, requested_rows, route
from wmla.identifiers import existing

__all__ = ["WmlaFileOutput", "code_file", "template_named", "urls"]

#: Entry points that WMLA expects in a folder: the first for elastic training, the second for all other.
_ENTRY_POINTS = ("elastic-main.py", "main.py")
_CHUNK = 256 * 1024


class WmlaTemplateInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    path = serializers.CharField(max_length=4096, help_text="Path below a permitted model root.")
    framework = serializers.CharField(max_length=64, help_text="Always PyTorch.")
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True, allow_null=True)
    entryPoint = serializers.CharField(
        max_length=4096,
        default="",
        allow_blank=True,
        help_text="Script to run, not in WMLA; default: elastic-main.py, or main.py.",
    )


class WmlaTemplateChange(serializers.Serializer[Any]):
    path = serializers.CharField(max_length=4096, default="", allow_blank=True)
    framework = serializers.CharField(max_length=64, default="", allow_blank=True)
    description = serializers.CharField(max_length=10_000, default=None, allow_blank=True, allow_null=True)


class WmlaTemplateOutput(serializers.Serializer[Any]):
    name = Text()
    path = Text()
    framework = Text()
    frameworkVersion = Text(allow_null=True, help_text="Always null: the hosts' version is used.")
    description = Text()
    entryPoint = Text(source="entry_point", help_text="Script to run; not in WMLA.")
    user = Text(source="owner.username")
    createTime = Text(lambda template: iso(template.created_at))


class WmlaFileOutput(serializers.Serializer[Any]):
    name = Text(help_text="Path relative to the folder.")
    size = Whole(source="size_bytes", help_text="Bytes.")


class Templates(WmlaView):
    @extend_schema(
        parameters=[OpenApiParameter("framework", str), *LIST_PARAMETERS], responses=WmlaTemplateOutput(many=True)
    )
    def get(self, request: Request) -> Response:
        """List the templates that the user may read, or those of one framework, by name."""
        rows = queries.templates(signed_in(request)).order_by("name")
        if framework := request.query_params.get("framework", ""):
            rows = rows.filter(framework__iexact=framework.replace("\0", ""))
        return Response(WmlaTemplateOutput(requested_rows(request, rows), many=True).data)

    @extend_schema(request=WmlaTemplateInput, responses={201: WmlaTemplateOutput})
    def post(self, request: Request) -> Response:
        """Add a template with the code of a folder that contains elastic-main.py or main.py."""
        values = validated(WmlaTemplateInput, json_body(request))
        asked = (values["entryPoint"],) if values["entryPoint"] else _ENTRY_POINTS
        return Response(WmlaTemplateOutput(_added(request, values, *asked)).data, status=201)


class Template(WmlaView):
    @extend_schema(responses=WmlaTemplateOutput)
    def get(self, request: Request, template: str) -> Response:
        return Response(WmlaTemplateOutput(template_named(signed_in(request), template)).data)

    @extend_schema(request=WmlaTemplateChange, responses=WmlaTemplateOutput)
    def put(self, request: Request, template: str) -> Response:
        """Read the files at its path again. Models made from the template keep their files."""
        row = template_named(signed_in(request), template)
        given = validated(WmlaTemplateChange, json_body(request))
        for name, value in given.items():
            if value not in (None, "", getattr(row, name)):
                raise field_error(name, f"The {name} of a template cannot be changed: add another template.")
        return Response(WmlaTemplateOutput(actions.take_again(row, signed_in(request))).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, template: str) -> HttpResponse:
        """Delete the template. Refused (409) if a model was made from it."""
        actions.delete_template(template_named(signed_in(request), template), signed_in(request))
        return HttpResponse(status=204)


class TemplateFiles(WmlaView):
    @extend_schema(responses=WmlaFileOutput(many=True))
    def get(self, request: Request, template: str) -> Response:
        return Response(
            WmlaFileOutput(queries.code_files(template_named(signed_in(request), template).folder), many=True).data
        )


class TemplateFile(WmlaView):
    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, template: str, file: str) -> StreamingHttpResponse:
        return code_file(request, template_named(signed_in(request), template).folder, file)


def template_named(user: User, name: str) -> ModelTemplate:
    return existing(queries.find_template(user, name), "Model template", name, "/modeltemplates")


def code_file(request: Request, folder: Path, name: str) -> StreamingHttpResponse:
    """Return a regular file below the folder; raise NotFound for any other name."""
    file = next((path for found, path in regular_files(folder) if found == name), None)
    if file is None:
        raise NotFound(f"File {shown_text(name)} not found: list the files with GET .../files.")
    safe = re.sub(r"[^\w.-]", "-", name, flags=re.ASCII)
    return file_response(request, _chunks(file), safe, "text/plain; charset=utf-8")


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        yield from iter(lambda: stream.read(_CHUNK), b"")


def _added(request: Request, values: dict[str, Any], *entry_points: str) -> ModelTemplate:
    """Add a template whose entry point is the first of these scripts in the folder."""
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
    """Return the framework in its standard spelling, if it is known."""
    return next((known for known in ModelTemplate.Framework.values if known.lower() == name.lower()), name)


urls: list[URLPattern] = [
    route("modeltemplates", Templates, "templates"),
    route("modeltemplates/<template>", Template, "template"),
    route("modeltemplates/<template>/files", TemplateFiles, "template-files"),
    route("modeltemplates/<template>/files/<path:file>", TemplateFile, "template-file"),
]
