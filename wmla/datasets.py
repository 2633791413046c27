"""`/datasets`: Tidepool's datasets. Their files are read in place, so nothing is imported."""

from typing import Any

from django.http import HttpResponse
from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, UserError, field_error
from core.rest import signed_in, validated
from core.text import shown_text
from core.time import iso
from datasets import actions, queries
from datasets.models import Dataset, DatasetVersion
from wmla.answer_fields import Flag, Json, Real, Text, Texts, Whole
from wmla.base_view import LIST_PARAMETERS, WmlaView, json_body, requested_rows, route
from wmla.identifiers import existing, group_meant

__all__ = ["urls"]

_KINDS = {
    "OTHER": Dataset.Kind.ANY,
    "IMAGEFORCLASSIFICATION": Dataset.Kind.IMAGES,
    "CSV": Dataset.Kind.CSV,
}
_TYPES = {kind.value: name for name, kind in _KINDS.items()}
_UNSUPPORTED = {
    "LMDB": "LMDB files",
    "TFRECORDS": "TFRecord files",
    "IMAGEFOROBJECTDETECTION": "images with bounding boxes",
    "IMGTOVECTOR": "images with vectors",
}
#: Fields of WMLA's data conversion, which does not exist here.
_WITHOUT_CONVERSION = ("meanfilepath", "plugin", "imagedetail", "shards", "byclass")
_State = DatasetVersion.State
_WORDS: dict[str, str] = {
    _State.WAITING: "SUBMITTED",
    _State.CHECKING: "RUNNING",
    _State.READY: "FINISHED",
    _State.INVALID: "ERROR",
}


class WmlaDatasetInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    datasourcetype = serializers.CharField(max_length=64, help_text="OTHER, IMAGEFORCLASSIFICATION or CSV.")
    dbbackend = serializers.CharField(
        max_length=64, help_text="Always Other: files are read in place, without conversion."
    )
    sigid = serializers.CharField(
        max_length=300,
        help_text="Id of an existing instance group; otherwise ignored, because datasets belong to no group.",
    )
    trainpath = serializers.CharField(max_length=4096, help_text="Path below a permitted data root.")
    valpath = serializers.CharField(max_length=4096, default="", allow_blank=True, allow_null=True)
    testpath = serializers.CharField(max_length=4096, default="", allow_blank=True, allow_null=True)


def _newest(dataset: Dataset) -> DatasetVersion:
    return dataset.latest[0]  # type: ignore[attr-defined, no-any-return]


class Labels(Texts):
    """Classes that the newest check found in a part. Lists omit them, because each would need a query."""

    def __init__(self, role: str) -> None:
        super().__init__(help_text="Only in the response for a single dataset.")
        self._role = role

    def get_attribute(self, instance: Dataset) -> list[str]:
        if isinstance(self.root, serializers.ListSerializer):
            return []
        parts = _newest(instance).summary.get("parts", [])
        return {part["role"] or "training": list(part["classes"]) for part in parts}.get(self._role, [])


class WmlaDatasetOutput(serializers.Serializer[Any]):
    # A dataset belongs to no group here, no application imports it, and its files are not converted.

    name = Text()
    datasourcetype = Text(lambda dataset: _TYPES[dataset.kind])
    dbbackend = Text(lambda dataset: "Other")
    trainpath = Text(lambda dataset: _newest(dataset).training or _newest(dataset).path)
    valpath = Text(lambda dataset: _newest(dataset).validation)
    testpath = Text(lambda dataset: _newest(dataset).testing)
    status = Text(
        lambda dataset: _WORDS[_newest(dataset).state],
        help_text="State of its check: SUBMITTED, RUNNING, FINISHED or ERROR.",
    )
    message = Text(lambda dataset: _newest(dataset).problem, help_text="Reason why it cannot be used; not in WMLA.")
    size = Whole(lambda dataset: _newest(dataset).size_bytes, allow_null=True, help_text="Bytes.")
    submittedtime = Text(lambda dataset: iso(_newest(dataset).created_at))
    createUser = Text(source="owner.username")
    trainlabels = Labels("training")
    vallabels = Labels("validation")
    testlabels = Labels("testing")
    runduration = Real(allow_null=True)
    sigid = Text(allow_null=True)
    signame = Text(allow_null=True, help_text="Always null: a dataset belongs to no group.")
    masterUrl = Text(allow_null=True)
    driverid = Text(allow_null=True, help_text="Always null: no application imports it.")
    sparkappid = Text(allow_null=True)
    meanfilepath = Text(allow_null=True, help_text="Always null: files are not converted.")
    plugin = Text(allow_null=True)
    imagedetail = Json(allow_null=True)
    shards = Whole(allow_null=True)
    byclass = Flag(allow_null=True)


class Datasets(WmlaView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaDatasetOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all datasets, by name."""
        rows = requested_rows(request, queries.datasets().order_by("name"))
        return Response(WmlaDatasetOutput(rows, many=True).data)

    @extend_schema(request=WmlaDatasetInput, responses={201: WmlaDatasetOutput})
    def post(self, request: Request) -> Response:
        """Register a dataset from folders below the data roots."""
        body = json_body(request)
        user, values = signed_in(request), validated(WmlaDatasetInput, body)
        kind = _kind(values, body)
        group_meant(user, values["sigid"])
        if Dataset.objects.filter(name=values["name"]).exists():
            raise Conflict(f"Dataset {shown_text(values['name'])} already exists: choose another name.")
        registration = actions.DatasetRegistration(
            name=values["name"],
            kind=kind,
            training=values["trainpath"],
            validation=values["valpath"] or "",
            testing=values["testpath"] or "",
        )
        version = actions.register(user, registration)
        return Response(WmlaDatasetOutput(_found(version.dataset.name)).data, status=201)


class DatasetDetail(WmlaView):
    @extend_schema(responses=WmlaDatasetOutput)
    def get(self, request: Request, dataset: str) -> Response:
        return Response(WmlaDatasetOutput(_found(dataset)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, dataset: str) -> HttpResponse:
        """Delete the dataset, but not its folders on the server. Refused (409) if a training has used it."""
        actions.delete_dataset(signed_in(request), _found(dataset))
        return HttpResponse(status=204)


class DatasetStop(WmlaView):
    @extend_schema(request=None, responses={400: str})
    def put(self, request: Request, dataset: str) -> HttpResponse:
        """Always refuse, because datasets are not imported."""
        row = _found(dataset)
        actions.require_owner(signed_in(request), row)
        raise UserError(f"Dataset {row.name} has no import to stop: its files are read in place.")


def _found(name: str) -> Dataset:
    return existing(queries.find_dataset(name), "Dataset", name, "/datasets")


def _kind(values: dict[str, Any], body: dict[str, Any]) -> str:
    asked, backend = values["datasourcetype"].upper(), values["dbbackend"]
    if asked not in _KINDS:
        what = f" ({_UNSUPPORTED[asked]})" if asked in _UNSUPPORTED else ""
        raise field_error(
            "datasourcetype",
            f"Datasets of type {shown_text(asked)}{what} are not supported: use {', '.join(_KINDS)}.",
        )
    if backend.lower() not in ("other", "none"):
        raise field_error("dbbackend", f"Files are read in place, not converted to {shown_text(backend)}: use Other.")
    for name in _WITHOUT_CONVERSION:
        if body.get(name):
            raise field_error(name, f"{name} configures a conversion, but files are read in place: remove it.")
    return _KINDS[asked]


urls: list[URLPattern] = [
    route("datasets", Datasets, "datasets"),
    route("datasets/<dataset>", DatasetDetail, "dataset"),
    route("datasets/<dataset>/stop", DatasetStop, "dataset-stop"),
]
