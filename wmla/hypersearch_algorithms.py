"""`/hypersearch/algorithm`: the search algorithms, and the installation of users' own, called plug-ins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, NotFound, UserError, field_error
from core.file_sources import Upload
from core.rest import signed_in, validated
from core.text import shown_text
from studies.models import PLUGIN, SearchPlugin
from studies.plugins import PluginRequest, delete_plugin, find_plugin, install_plugin, plugins
from wmla.answer_fields import Choice, Flag, Text
from wmla.base_view import WmlaView, route
from wmla.hypersearch_names import time_text
from wmla.hypersearch_request import ALGORITHMS, Algorithm, algorithm_named, json_object
from wmla.submission import named_as_archive
from wmla.uploads import PARSERS, data_field, preflight_answer, uploaded_files

__all__ = ["finder", "urls"]

_ADDRESS = "/platform/rest/deeplearning/v1/hypersearch/algorithm"
_BUILT_IN, _PLUGIN = "BUILD_IN", "USER_PLUGIN"
#: Segments below the address of algorithms that name none of them.
_RESERVED = ("install",)
#: Largest description of a plug-in.
_MAX_DATA = 64 * 1024
_MAX_PATH = 4096
#: Parts of the description that have no effect, and are repeated.
_REPEATED = ("condaHome", "condaEnv")
_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG"}
_EXAMPLE = '{"name": "my-search", "logLevel": "INFO"}'
_SEND = (
    "send the files as a gzipped tar in the multipart part named file, with optimizer.py at its top (tar czf "
    "plugin.tar.gz -C <folder> .)."
)


@dataclass(frozen=True)
class Described:
    """An algorithm, with the row of a plug-in."""

    name: str
    plugin: SearchPlugin | None = None


class AlgorithmOutput(serializers.Serializer[Any]):
    """A search algorithm. Built-in ones have the first three fields only."""

    name = Text()
    type = Choice(lambda one: _PLUGIN if one.plugin else _BUILT_IN, choices=[_BUILT_IN, _PLUGIN])
    remoteExec = Flag(lambda one: one.plugin is not None, help_text="True: a training of its own runs it.")
    path = Text(lambda one: one.plugin.code.path, required=False, help_text="Folder of its files on the server.")
    condaHome = Text(lambda one: one.plugin.asked.get("condaHome", ""), required=False, help_text="Without effect.")
    condaEnv = Text(lambda one: one.plugin.asked.get("condaEnv", ""), required=False, help_text="Without effect.")
    creator = Text(lambda one: one.plugin.owner.get_username(), required=False)
    createtime = Text(lambda one: time_text(one.plugin.created_at), required=False)
    logLevel = Text(lambda one: one.plugin.log_level, required=False)

    def to_representation(self, instance: Described) -> dict[str, Any]:
        if instance.plugin is not None:
            return super().to_representation(instance)
        return {"name": instance.name, "type": _BUILT_IN, "remoteExec": False}


class InstalledOutput(serializers.Serializer[Any]):
    uid = serializers.CharField(help_text="Name of the plug-in.")
    href = serializers.CharField(help_text="Path of the plug-in.")


class InstallInput(serializers.Serializer[Any]):
    file = serializers.FileField(help_text="Gzipped tar with optimizer.py at its top.")
    data = serializers.CharField(  # type: ignore[assignment]
        help_text='JSON: {"name": "…", "logLevel": "INFO"}; condaHome, condaEnv and remoteExec have no effect.'
    )


class AlgorithmQuery(serializers.Serializer[Any]):
    type = serializers.CharField(required=False, max_length=50, help_text=f"{_BUILT_IN} or {_PLUGIN}; default: both.")


class AlgorithmView(WmlaView):
    """Base class of the views that install a plug-in."""

    parser_classes = PARSERS

    def install(self, request: Request) -> Response:
        if (answer := preflight_answer(request)) is not None:
            return answer
        given = json_object(data_field(request, _MAX_DATA), _EXAMPLE)
        plugin = install_plugin(signed_in(request), _plugin_request(given, uploaded_files(request)))
        return Response({"uid": plugin.name, "href": f"{_ADDRESS}/{plugin.name}"})


class SearchAlgorithms(AlgorithmView):
    @extend_schema(parameters=[AlgorithmQuery], responses=AlgorithmOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the search algorithms: built-in ones, and plug-ins that the user may use."""
        kind = validated(AlgorithmQuery, request.query_params).get("type", "").upper()
        if kind not in ("", _BUILT_IN, _PLUGIN):
            raise UserError(f"type is {kind[:50]!a}: use {_BUILT_IN} or {_PLUGIN}.")
        built_in = [] if kind == _PLUGIN else [Described(algorithm.name) for algorithm in ALGORITHMS]
        own = [] if kind == _BUILT_IN else [Described(row.name, row) for row in plugins(signed_in(request))]
        return Response(AlgorithmOutput([*built_in, *own], many=True).data)

    @extend_schema(request={"multipart/form-data": InstallInput}, responses=InstalledOutput)
    def post(self, request: Request) -> Response:
        """Install a plug-in, like POST `install`: the address of older releases."""
        return self.install(request)


class InstallAlgorithm(AlgorithmView):
    @extend_schema(request={"multipart/form-data": InstallInput}, responses=InstalledOutput)
    def post(self, request: Request) -> Response:
        """Install a plug-in: a class PluginOptimizer in optimizer.py, which a training of its own runs."""
        return self.install(request)


class SearchAlgorithm(WmlaView):
    @extend_schema(responses=AlgorithmOutput)
    def get(self, request: Request, algorithm: str) -> Response:
        """Return the algorithm; an empty object, as in WMLA, if there is none."""
        built_in, plugin = algorithm_named(algorithm), find_plugin(signed_in(request), algorithm)
        if built_in is not None:
            return Response(AlgorithmOutput(Described(built_in.name)).data)
        return Response({} if plugin is None else AlgorithmOutput(Described(plugin.name, plugin)).data)

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, algorithm: str) -> HttpResponse:
        """Delete a plug-in. Refused (409) while a search uses it; built-in algorithms cannot be deleted."""
        if algorithm_named(algorithm) is not None:
            raise UserError(f"Algorithm {shown_text(algorithm)} is built in and cannot be deleted.")
        plugin = find_plugin(signed_in(request), algorithm)
        if plugin is None:
            raise NotFound(f"Algorithm {shown_text(algorithm)} not found: list them with GET /hypersearch/algorithm.")
        delete_plugin(signed_in(request), plugin)
        return HttpResponse(status=204)


def finder(user: User) -> Callable[[str], Algorithm | None]:
    """Return the function that finds the algorithms that the user may use, by their name."""

    def find(name: str) -> Algorithm | None:
        found = algorithm_named(name)
        if found is not None:
            return found
        plugin = find_plugin(user, name)
        return None if plugin is None else Algorithm(plugin.name, PLUGIN, plugin=plugin)

    return find


def _plugin_request(given: dict[str, Any], files: list[Upload]) -> PluginRequest:
    """Check the description and the files of a plug-in."""
    texts = {name: _text(given, name) for name in ("name", "path", "logLevel", *_REPEATED)}
    if algorithm_named(texts["name"]) is not None or texts["name"].lower() in _RESERVED:
        raise Conflict(f"Algorithm {shown_text(texts['name'])} is built in: choose another name.")
    if not files and texts["path"]:
        raise field_error("path", f"path is a folder on the server, which is not read here: {_SEND}")
    if len(files) != 1:
        raise field_error("file", f"The request has {'no' if not files else 'more than one'} file: {_SEND}")
    level = texts["logLevel"].upper() or "INFO"
    return PluginRequest(
        name=texts["name"],
        upload=named_as_archive(files[0]),
        log_level=_LEVELS.get(level, level),
        asked={name: texts[name] for name in _REPEATED},
    )


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _MAX_PATH):
        raise field_error(name, f"{name} is {ascii(value)[:50]}: send a text.")
    return (value or "").strip()


urls: list[URLPattern] = [
    route("hypersearch/algorithm", SearchAlgorithms, "search-algorithms"),
    route("hypersearch/algorithm/install", InstallAlgorithm, "hypersearch-install"),
    route("hypersearch/algorithm/<algorithm>", SearchAlgorithm, "search-algorithm"),
]
