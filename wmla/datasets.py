"""`/datasets`: Tidepool's datasets. Their files are read in place, so nothing is imported."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, NotAllowed, NotFound, UserError, field_error
from core.rest import ObjectField, signed_in, validated
from core.text import shown_text
from core.time import iso
from datasets import actions, queries
from datasets.models import Dataset, DatasetVersion
from wmla.lists import LIST_PARAMETERS, part_asked_for
from wmla.lookup import group_of
from wmla.view import WmlaView, json_body

__all__ = ["DatasetDetail", "DatasetStop", "Datasets"]

_KINDS = {
    "OTHER": Dataset.Kind.ANY,
    "IMAGEFORCLASSIFICATION": Dataset.Kind.IMAGES,
    "CSV": Dataset.Kind.CSV,
}
_TYPES = {kind.value: name for name, kind in _KINDS.items()}
_NOT_HERE = {
    "LMDB": "files of LMDB",
    "TFRECORDS": "TensorFlow's records",
    "IMAGEFOROBJECTDETECTION": "images with boxes",
    "IMGTOVECTOR": "images with vectors",
}
#: Of a conversion that does not happen.
_WITHOUT_CONVERSION = ("meanfilepath", "plugin", "imagedetail", "shards", "byclass")
#: What a dataset has in WMLA and never here: it belongs to no group, and no application imports it.
_NEVER = ("runduration", "sigid", "signame", "masterUrl", "driverid", "sparkappid", *_WITHOUT_CONVERSION)
_State = DatasetVersion.State
_WORDS = {
    _State.WAITING: "SUBMITTED",
    _State.CHECKING: "RUNNING",
    _State.READY: "FINISHED",
    _State.INVALID: "ERROR",
}


class WmlaDatasetInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    datasourcetype = serializers.CharField(max_length=64, help_text="OTHER, IMAGEFORCLASSIFICATION or CSV.")
    dbbackend = serializers.CharField(max_length=64, help_text="Other: files are read as they are.")
    sigid = serializers.CharField(max_length=300, help_text="Has to exist; a dataset belongs to no group here.")
    trainpath = serializers.CharField(max_length=4096, help_text="Below an allowed data root.")
    valpath = serializers.CharField(max_length=4096, default="", allow_blank=True, allow_null=True)
    testpath = serializers.CharField(max_length=4096, default="", allow_blank=True, allow_null=True)


class WmlaDatasetOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    datasourcetype = serializers.CharField()
    dbbackend = serializers.CharField()
    trainpath = serializers.CharField()
    valpath = serializers.CharField()
    testpath = serializers.CharField()
    status = serializers.CharField(help_text="Of its check: SUBMITTED, RUNNING, FINISHED or ERROR.")
    message = serializers.CharField(help_text="Why it cannot be used; ours.")
    size = serializers.IntegerField(allow_null=True, help_text="Bytes.")
    submittedtime = serializers.CharField()
    createUser = serializers.CharField()
    trainlabels = serializers.ListField(child=serializers.CharField(), help_text="Of the detail.")
    vallabels = serializers.ListField(child=serializers.CharField(), help_text="Of the detail.")
    testlabels = serializers.ListField(child=serializers.CharField(), help_text="Of the detail.")
    runduration = serializers.FloatField(allow_null=True)
    sigid = serializers.CharField(allow_null=True)
    signame = serializers.CharField(allow_null=True, help_text="A dataset belongs to no group here.")
    masterUrl = serializers.CharField(allow_null=True)
    driverid = serializers.CharField(allow_null=True, help_text="No application imports it.")
    sparkappid = serializers.CharField(allow_null=True)
    meanfilepath = serializers.CharField(allow_null=True, help_text="Files are not converted.")
    plugin = serializers.CharField(allow_null=True)
    imagedetail = ObjectField(allow_null=True)
    shards = serializers.IntegerField(allow_null=True)
    byclass = serializers.BooleanField(allow_null=True)


class Datasets(WmlaView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaDatasetOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all datasets, by name."""
        return Response([_as_json(row) for row in part_asked_for(request, queries.datasets().order_by("name"))])

    @extend_schema(request=WmlaDatasetInput, responses={201: WmlaDatasetOutput})
    def post(self, request: Request) -> Response:
        """Register a dataset from folders below the data roots."""
        body = json_body(request)
        user, values = signed_in(request), validated(WmlaDatasetInput, body)
        kind = _kind(values, body)
        try:
            group_of(user, values["sigid"])
        except NotFound as error:
            raise UserError(error.message) from error
        if Dataset.objects.filter(name=values["name"]).exists():
            raise Conflict(f"There is a dataset {shown_text(values['name'])} already: choose another name.")
        registration = actions.DatasetRegistration(
            name=values["name"],
            kind=kind,
            training=values["trainpath"],
            validation=values["valpath"] or "",
            testing=values["testpath"] or "",
        )
        version = actions.register(user, registration)
        return Response(_detail(_found(version.dataset.name)), status=201)


class _DatasetView(WmlaView):
    def dataset(self) -> Dataset:
        return _found(self.kwargs["dataset"])


class DatasetDetail(_DatasetView):
    @extend_schema(responses=WmlaDatasetOutput)
    def get(self, request: Request, dataset: str) -> Response:
        return Response(_detail(self.dataset()))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, dataset: str) -> HttpResponse:
        """Delete the dataset. Refused (409) if a training has used it. Folders on the server stay."""
        actions.delete_dataset(signed_in(request), self.dataset())
        return HttpResponse(status=204)


class DatasetStop(_DatasetView):
    @extend_schema(request=None, responses={400: str})
    def put(self, request: Request, dataset: str) -> HttpResponse:
        """Always refuse: there is no import that could be stopped."""
        row, user = self.dataset(), signed_in(request)
        if row.owner_id != user.pk and not user.is_staff:
            raise NotAllowed(f"Only the owner of {row.name} and administrators may change it: ask them.")
        raise UserError(f"Dataset {row.name} has no import that could be stopped: its files are read in place.")


def _found(name: str) -> Dataset:
    dataset = queries.find_dataset(name)
    if dataset is None:
        raise NotFound(f"Dataset {shown_text(name)} not found: list them with GET /datasets.")
    return dataset


def _kind(values: dict[str, Any], body: dict[str, Any]) -> str:
    asked, backend = values["datasourcetype"].upper(), values["dbbackend"]
    if asked not in _KINDS:
        what = f" ({_NOT_HERE[asked]})" if asked in _NOT_HERE else ""
        raise field_error(
            "datasourcetype",
            f"Datasets of the type {shown_text(asked)}{what} are not supported: use {', '.join(_KINDS)}.",
        )
    if backend.lower() not in ("other", "none"):
        raise field_error(
            "dbbackend", f"Files are read as they are, never converted to {shown_text(backend)}: use Other."
        )
    for name in _WITHOUT_CONVERSION:
        if body.get(name):
            raise field_error(name, f"{name} belongs to a conversion, and files are read as they are: leave it out.")
    return _KINDS[asked]


def _as_json(dataset: Dataset) -> dict[str, Any]:
    version = dataset.latest[0]  # type: ignore[attr-defined]
    return {
        "name": dataset.name,
        "datasourcetype": _TYPES[dataset.kind],
        "dbbackend": "Other",
        "trainpath": version.training or version.path,
        "valpath": version.validation,
        "testpath": version.testing,
        "status": _WORDS[version.state],
        "message": version.problem,
        "size": version.size_bytes,
        "submittedtime": iso(version.created_at),
        "createUser": dataset.owner.get_username(),
        "trainlabels": [],
        "vallabels": [],
        "testlabels": [],
        **dict.fromkeys(_NEVER),
    }


def _detail(dataset: Dataset) -> dict[str, Any]:
    """Return the dataset with the classes that its check has found."""
    parts = dataset.latest[0].summary.get("parts", [])  # type: ignore[attr-defined]
    labels = {part["role"] or "training": list(part["classes"]) for part in parts}
    return _as_json(dataset) | {
        "trainlabels": labels.get("training", []),
        "vallabels": labels.get("validation", []),
        "testlabels": labels.get("testing", []),
    }
