"""`/models`: a template's code with the settings of its trainings."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn

from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, NotFound, UserError, field_error
from core.references import is_storable
from core.rest import signed_in, validated
from core.text import shown_text
from core.time import iso
from jobs.models import Job
from models_registry import actions, queries
from models_registry.code import inspect_code
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from models_registry.settings import own_parameters
from wmla.hyperparameters import hyperparameters_of, settings_of
from wmla.lists import LIST_PARAMETERS, part_asked_for
from wmla.lookup import group_of, wmla_jobs
from wmla.templates import WmlaFileOutput, code_file, code_files, template_named
from wmla.view import WmlaView, json_body

__all__ = ["Model", "ModelFile", "ModelFiles", "ModelView", "ModelWeights", "Models", "WeightUpload", "model_named"]

_Engine = RegisteredModelVersion.Engine
_ENGINES = {"Single": _Engine.SINGLE, "Native": _Engine.FIXED, "Elastic": _Engine.ELASTIC}
_ACCELERATORS = {engine.value: name for name, engine in _ENGINES.items()}
_TRAINING = "Training"
#: Fields of WMLA's for what is not here -> what to do instead.
_NOT_HERE = {
    "wtfolder": "begin a training with the weights of another one by its wfinit",
    "tfmainContent": "it belongs to TensorFlow, and models are PyTorch's here",
    "distributeStrategy": "it belongs to TensorFlow, and models are PyTorch's here",
}


class WmlaModelInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    templatename = serializers.CharField(max_length=255, help_text="Of a PUT absent: the files stay as they are.")
    accelerator = serializers.CharField(max_length=64, default="Elastic", help_text="Single, Native or Elastic.")
    type = serializers.CharField(max_length=64, default=_TRAINING, help_text="Training.")
    dataset = serializers.CharField(max_length=255, default="", allow_blank=True, allow_null=True)
    batchsize = serializers.JSONField(default=None, allow_null=True)
    sig = serializers.CharField(
        max_length=300,
        default="",
        allow_blank=True,
        allow_null=True,
        help_text="Has to exist; a training names its own.",
    )
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True, allow_null=True)
    hyperparameter = serializers.JSONField(
        default=dict,
        allow_null=True,
        help_text="learningrate, momentum, weightdecay, epoch, solvertype, lrpolicy, gamma, stepsize, stepvalues, "
        "t_max, factor.",
    )


class WmlaModelChange(WmlaModelInput):
    """A change of a model; absent fields stay as they are."""

    name = serializers.CharField(max_length=10_000, required=False, trim_whitespace=False)
    templatename = serializers.CharField(max_length=255, required=False, allow_blank=True, allow_null=True)
    accelerator = serializers.CharField(max_length=64, required=False)
    dataset = serializers.CharField(max_length=255, required=False, allow_blank=True, allow_null=True)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True, allow_null=True)


class WmlaModelOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    templatename = serializers.CharField(allow_null=True, help_text="null: it was registered with files of its own.")
    accelerator = serializers.CharField()
    type = serializers.CharField()
    framework = serializers.CharField()
    frameworkVersion = serializers.CharField(allow_null=True, help_text="That of the hosts.")
    path = serializers.CharField()
    description = serializers.CharField()
    dataset = serializers.CharField()
    batchsize = serializers.IntegerField(allow_null=True)
    hyperparameter = serializers.DictField()
    sig = serializers.CharField(allow_null=True)
    signame = serializers.CharField(allow_null=True, help_text="A training names its group, a model none.")
    wtfolder = serializers.CharField(allow_null=True)
    tfmainContent = serializers.CharField(allow_null=True)
    distributeStrategy = serializers.CharField(allow_null=True)
    user = serializers.CharField()
    createTime = serializers.CharField()
    wfinit = serializers.CharField(allow_null=True, help_text="A training begins with weights, a model has none.")
    version = serializers.IntegerField(help_text="Ours: each PUT makes the next one, and trainings keep theirs.")


class Models(WmlaView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaModelOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all models, by name."""
        return Response([_as_json(row) for row in part_asked_for(request, queries.models().order_by("name"))])

    @extend_schema(request=WmlaModelInput, responses={201: WmlaModelOutput})
    def post(self, request: Request) -> Response:
        body = json_body(request)
        values = validated(WmlaModelInput, body)
        _check(request, values, body)
        if RegisteredModel.objects.filter(name=values["name"]).exists():
            raise Conflict(f"There is a model {shown_text(values['name'])} already: PUT changes it.")
        try:
            template = template_named(values["templatename"])
        except NotFound as error:
            raise field_error("templatename", error.message) from error
        registration = actions.ModelRegistration(
            name=values["name"],
            source=template,
            framework=template.framework,
            engine=_engine(values["accelerator"]),
            default_dataset=values["dataset"] or "",
            settings=settings_of(values["hyperparameter"], values["batchsize"]),
            description=values["description"] or "",
        )
        version = actions.register(signed_in(request), registration)
        return Response(_as_json(model_named(version.model.name)), status=201)


class ModelView(WmlaView):
    """Base of the views of one model, and of its trainings that the user sees."""

    def trainings(self) -> QuerySet[Job]:
        return wmla_jobs(signed_in(self.request)).filter(model__model=self.model(), validation=None)

    def named(self, name: str) -> Job:
        """Find the newest training by its name."""
        job = self.trainings().filter(name=name).order_by("-id").first() if is_storable(name) else None
        if job is None:
            model = self.kwargs["model"]
            raise NotFound(f"Training {shown_text(name)} not found: list them with GET /models/{model}/trainings.")
        return job

    def model(self) -> RegisteredModel:
        return self._model

    @cached_property
    def _model(self) -> RegisteredModel:
        return model_named(self.kwargs["model"])

    def newest(self) -> RegisteredModelVersion:
        version: RegisteredModelVersion = self.model().latest[0]  # type: ignore[attr-defined]
        return version


class Model(ModelView):
    @extend_schema(responses=WmlaModelOutput)
    def get(self, request: Request, model: str) -> Response:
        return Response(_as_json(self.model()))

    @extend_schema(request=WmlaModelChange, responses=WmlaModelOutput)
    def put(self, request: Request, model: str) -> Response:
        """Make the next version; started trainings keep theirs. Absent fields stay as they are."""
        row, newest = self.model(), self.newest()
        body = json_body(request)
        values = validated(WmlaModelChange, body)
        _check(request, values, body)
        if values.get("name", row.name) != row.name:
            raise field_error("name", "A model keeps its name: make another one with POST /models.")
        version = actions.register(signed_in(request), _next_version(row, newest, values, body))
        return Response(_as_json(model_named(version.model.name)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, model: str) -> HttpResponse:
        """Delete the model. Refused (409) if a training was started with it."""
        actions.delete_model(self.model(), signed_in(request))
        return HttpResponse(status=204)


@extend_schema(exclude=True)
class WeightUpload(Model):
    """The address where WMLA takes files of weights; a model that happens to have this name is found all the same."""

    def post(self, request: Request, model: str) -> NoReturn:
        raise NotFound(
            "Weights cannot be uploaded here: start a training with those of an earlier one, by its name as wfinit."
        )


class ModelFiles(ModelView):
    @extend_schema(responses=WmlaFileOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        return Response(code_files(self.newest().folder))

    @extend_schema(request=OpenApiTypes.OBJECT, responses={400: str})
    def put(self, request: Request, model: str) -> NoReturn:
        """Always refuse: the files of a version never change."""
        raise UserError(
            f"Files of model {self.model().name} are not changed one by one: change them in the template's folder, "
            "take them with PUT /modeltemplates/<template>, and PUT its templatename to the model."
        )


class ModelFile(ModelView):
    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, model: str, file: str) -> StreamingHttpResponse:
        return code_file(request, self.newest().folder, file)


class ModelWeights(ModelView):
    @extend_schema(responses={404: str})
    def get(self, request: Request, model: str) -> HttpResponse:
        """Always refuse: weights belong to trainings."""
        name = self.model().name
        raise NotFound(f"Model {name} has no weights of its own: GET /models/{name}/trainings/<name>/weightfile.")


def model_named(name: str) -> RegisteredModel:
    model = queries.find_model(name)
    if model is None:
        raise NotFound(f"Model {shown_text(name)} not found: list them with GET /models.")
    return model


def _next_version(
    model: RegisteredModel, newest: RegisteredModelVersion, values: dict[str, Any], body: dict[str, Any]
) -> actions.ModelRegistration:
    source: ModelTemplate | RegisteredModelVersion = newest
    if values.get("templatename"):
        try:
            source = template_named(values["templatename"])
        except NotFound as error:
            raise field_error("templatename", error.message) from error
    arguments = inspect_code(newest.folder, newest.entry_point).arguments
    settings = dict(newest.settings)
    if body.get("hyperparameter") is not None:
        settings = {name: value for name, value in settings.items() if name == "batch_size"}
    settings |= settings_of(values["hyperparameter"], values["batchsize"])
    return actions.ModelRegistration(
        name=model.name,
        source=source,
        framework=newest.framework,
        engine=_engine(values["accelerator"]) if "accelerator" in values else newest.engine,
        default_dataset=newest.default_dataset if values.get("dataset") is None else values["dataset"],
        settings=settings,
        parameters=own_parameters(newest.parameters, newest.settings, arguments),
        description=model.description if values.get("description") is None else values["description"],
    )


def _check(request: Request, values: dict[str, Any], body: dict[str, Any]) -> None:
    if values["type"].lower() != _TRAINING.lower():
        raise field_error("type", f"Models are for training here, none is served: use {_TRAINING}.")
    for name, advice in _NOT_HERE.items():
        if body.get(name):
            raise field_error(name, f"{name} is not supported: {advice}.")
    if values["sig"]:
        try:
            group_of(signed_in(request), values["sig"])
        except NotFound as error:
            raise UserError(error.message) from error


def _engine(name: str) -> str:
    for known, engine in _ENGINES.items():
        if known.lower() == name.lower():
            return engine
    raise field_error("accelerator", f"There is no accelerator {shown_text(name)}: use {', '.join(_ENGINES)}.")


def _as_json(model: RegisteredModel) -> dict[str, Any]:
    version: RegisteredModelVersion = model.latest[0]  # type: ignore[attr-defined]
    return {
        "name": model.name,
        "templatename": version.template.name if version.template else None,
        "accelerator": _ACCELERATORS[version.engine],
        "type": _TRAINING,
        "framework": version.framework,
        "frameworkVersion": None,
        "path": version.path,
        "description": model.description,
        "dataset": version.default_dataset,
        "batchsize": version.settings.get("batch_size"),
        "hyperparameter": hyperparameters_of(version.settings),
        **dict.fromkeys(("sig", "signame", *_NOT_HERE)),
        "user": model.owner.get_username(),
        "createTime": iso(version.created_at),
        "wfinit": None,
        "version": version.number,
    }
