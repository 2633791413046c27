"""`/models`: a template's code with the settings of its trainings, called hyperparameters in WMLA."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NoReturn

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, NotFound, UserError, field_error
from core.parameters import Scalar
from core.rest import signed_in, validated
from core.text import is_storable, shown_text
from core.time import iso
from jobs.models import Job
from models_registry import actions, queries
from models_registry.code_inspection import inspect_code
from models_registry.model_settings import own_parameters, setting_named
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from wmla.answer_fields import Json, Text, Whole
from wmla.base_view import LIST_PARAMETERS, WmlaView, json_body, refuse_fields, requested_rows, route
from wmla.identifiers import existing, group_meant, wmla_jobs
from wmla.templates import WmlaFileOutput, code_file, template_named

__all__ = ["ModelView", "WeightUpload", "WmlaModelOutput", "found_model", "setting_of", "urls"]

_Engine = RegisteredModelVersion.Engine
_ENGINES = {"Single": _Engine.SINGLE, "Native": _Engine.FIXED, "Elastic": _Engine.ELASTIC}
_ACCELERATORS = {engine.value: name for name, engine in _ENGINES.items()}
_TRAINING = "Training"
#: Fields of unsupported features -> advice.
_UNSUPPORTED = {
    "wtfolder": "start a training with the weights of an earlier one by its wfinit",
    **dict.fromkeys(("tfmainContent", "distributeStrategy"), "it belongs to TensorFlow, and models are PyTorch's here"),
}
#: WMLA's hyperparameters -> our settings.
_NAMES = {
    "learningrate": "learning_rate",
    "momentum": "momentum",
    "weightdecay": "weight_decay",
    "epoch": "epochs",
    "solvertype": "optimizer",
    "lrpolicy": "lr_policy",
    "gamma": "gamma",
    "stepsize": "step_size",
    "stepvalues": "step_values",
    "t_max": "t_max",
}
#: The only policy whose factor of the learning rate is called `factor`; the others call it `gamma`.
_PLATEAU = "reducelronplateau"
#: Hyperparameters that cannot be changed -> PyTorch's default values, which a client's form may send.
_FIXED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("decayrate", "decaysteps", "staircase", "maxiteration", "power", "lr_decay", "amsgrad"), ()),
    **dict.fromkeys(("centered", "dampening", "nesterov", "eta_min", "cooldown"), ()),
    "rho": (0.9,),
    "lambd": (1e-4,),
    "alpha": (0.75, 0.99),
    "t0": (1e6,),
    "mode": ("min",),
    "patience": (10,),
    "threshold": (1e-4,),
    "eps": (1e-6, 1e-8, 1e-10),
}


class WmlaModelInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    templatename = serializers.CharField(
        max_length=255, help_text="Template of the code; with PUT, optional: the files do not change without it."
    )
    accelerator = serializers.CharField(max_length=64, default="Elastic", help_text="Single, Native or Elastic.")
    type = serializers.CharField(max_length=64, default=_TRAINING, help_text="Training.")
    dataset = serializers.CharField(max_length=255, default="", allow_blank=True, allow_null=True)
    batchsize = serializers.JSONField(default=None, allow_null=True)
    sig = serializers.CharField(
        max_length=300,
        default="",
        allow_blank=True,
        allow_null=True,
        help_text="Existing instance group; otherwise ignored, because each training names its own.",
    )
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True, allow_null=True)
    hyperparameter = serializers.JSONField(
        default=dict,
        allow_null=True,
        help_text="learningrate, momentum, weightdecay, epoch, solvertype, lrpolicy, gamma, stepsize, stepvalues, "
        "t_max, factor.",
    )


class WmlaModelChange(WmlaModelInput):
    """A change of a model; absent fields do not change."""

    name = serializers.CharField(max_length=10_000, required=False, trim_whitespace=False)
    templatename = serializers.CharField(max_length=255, required=False, allow_blank=True, allow_null=True)
    accelerator = serializers.CharField(max_length=64, required=False)
    dataset = serializers.CharField(max_length=255, required=False, allow_blank=True, allow_null=True)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True, allow_null=True)


class WmlaModelOutput(serializers.Serializer[Any]):
    name = Text()
    templatename = Text(
        lambda model: template.name if (template := _newest(model).template) else None,
        allow_null=True,
        help_text="Null for a model that was registered with its own files.",
    )
    accelerator = Text(lambda model: _ACCELERATORS[_newest(model).engine])
    type = Text(lambda model: _TRAINING)
    framework = Text(lambda model: _newest(model).framework)
    frameworkVersion = Text(allow_null=True, help_text="Always null: the hosts' version is used.")
    path = Text(lambda model: _newest(model).path)
    description = Text()
    dataset = Text(lambda model: _newest(model).default_dataset)
    batchsize = Whole(lambda model: _newest(model).settings.get("batch_size"), allow_null=True)
    hyperparameter = Json(lambda model: _hyperparameters_of(_newest(model).settings))
    sig = Text(allow_null=True)
    signame = Text(allow_null=True, help_text="Always null: a training names its group, a model does not.")
    wtfolder = Text(allow_null=True)
    tfmainContent = Text(allow_null=True)
    distributeStrategy = Text(allow_null=True)
    user = Text(source="owner.username")
    createTime = Text(lambda model: iso(_newest(model).created_at))
    wfinit = Text(allow_null=True, help_text="Always null: a training has initial weights, a model does not.")
    version = Whole(
        lambda model: _newest(model).number,
        help_text="Version of the model, not in WMLA: each PUT creates a version, and trainings keep theirs.",
    )


def _newest(model: RegisteredModel) -> RegisteredModelVersion:
    return model.latest[0]  # type: ignore[attr-defined, no-any-return]


class Models(WmlaView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaModelOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the models that the user may read, by name."""
        rows = requested_rows(request, queries.models(signed_in(request)).order_by("name"))
        return Response(WmlaModelOutput(rows, many=True).data)

    @extend_schema(request=WmlaModelInput, responses={201: WmlaModelOutput})
    def post(self, request: Request) -> Response:
        body = json_body(request)
        values = validated(WmlaModelInput, body)
        _check(request, values, body)
        user = signed_in(request)
        if queries.models(user).filter(name=values["name"]).exists():
            raise Conflict(f"Model {shown_text(values['name'])} already exists: use PUT to change it.")
        template = _template(user, values["templatename"])
        registration = actions.ModelRegistration(
            name=values["name"],
            source=template,
            framework=template.framework,
            engine=_engine(values["accelerator"]),
            default_dataset=values["dataset"] or "",
            settings=_settings_of(values["hyperparameter"], values["batchsize"]),
            description=values["description"] or "",
        )
        version = actions.register(user, registration)
        return Response(WmlaModelOutput(found_model(user, version.model.name)).data, status=201)


class ModelView(WmlaView):
    """Base class of the views of one model and of its trainings that the user may see."""

    def trainings(self) -> QuerySet[Job]:
        return wmla_jobs(signed_in(self.request)).filter(model__model=self.model, validation=None)

    def named(self, name: str) -> Job:
        """Find the newest training by its name."""
        job = self.trainings().filter(name=name).order_by("-id").first() if is_storable(name) else None
        return existing(job, "Training", name, f"/models/{self.kwargs['model']}/trainings")

    @cached_property
    def model(self) -> RegisteredModel:
        return found_model(signed_in(self.request), self.kwargs["model"])

    @property
    def newest(self) -> RegisteredModelVersion:
        return _newest(self.model)


class Model(ModelView):
    @extend_schema(responses=WmlaModelOutput)
    def get(self, request: Request, model: str) -> Response:
        return Response(WmlaModelOutput(self.model).data)

    @extend_schema(request=WmlaModelChange, responses=WmlaModelOutput)
    def put(self, request: Request, model: str) -> Response:
        """Create the next version; started trainings keep theirs. Absent fields do not change."""
        user, row, newest = signed_in(request), self.model, self.newest
        body = json_body(request)
        values = validated(WmlaModelChange, body)
        _check(request, values, body)
        if values.get("name", row.name) != row.name:
            raise field_error("name", "A model cannot be renamed: create another one with POST /models.")
        arguments = inspect_code(newest.folder, newest.entry_point).arguments
        settings = dict(newest.settings)
        if body.get("hyperparameter") is not None:
            settings = {name: value for name, value in settings.items() if name == "batch_size"}
        registration = actions.ModelRegistration(
            name=row.name,
            source=_template(user, values["templatename"]) if values.get("templatename") else newest,
            framework=newest.framework,
            engine=_engine(values["accelerator"]) if "accelerator" in values else newest.engine,
            default_dataset=newest.default_dataset if values.get("dataset") is None else values["dataset"],
            settings=settings | _settings_of(values["hyperparameter"], values["batchsize"]),
            parameters=own_parameters(newest.parameters, newest.settings, arguments),
            description=row.description if values.get("description") is None else values["description"],
        )
        version = actions.register(user, registration)
        return Response(WmlaModelOutput(found_model(user, version.model.name)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, model: str) -> HttpResponse:
        """Delete the model. Refused (409) if a training was started with it."""
        actions.delete_model(self.model, signed_in(request))
        return HttpResponse(status=204)


@extend_schema(exclude=True)
class WeightUpload(Model):
    """URL of weight uploads in WMLA, which are not supported; GET finds a model that happens to have this name."""

    def post(self, request: Request, model: str) -> NoReturn:
        raise NotFound(
            "Weights belong to trainings, not to models: upload them on the page Train or with POST "
            "/api/v1/uploads/ and start a training from them, or name an earlier training as wfinit."
        )


class ModelFiles(ModelView):
    @extend_schema(responses=WmlaFileOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        return Response(WmlaFileOutput(queries.code_files(self.newest.folder), many=True).data)

    @extend_schema(request=OpenApiTypes.OBJECT, responses={400: str})
    def put(self, request: Request, model: str) -> NoReturn:
        """Always refuse: the files of a version never change."""
        raise UserError(
            f"Single files of model {self.model.name} cannot be changed: change them in the template's folder, "
            "read them with PUT /modeltemplates/<template>, and PUT its templatename to the model."
        )


class ModelFile(ModelView):
    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, model: str, file: str) -> StreamingHttpResponse:
        return code_file(request, self.newest.folder, file)


class ModelWeights(ModelView):
    @extend_schema(responses={404: str})
    def get(self, request: Request, model: str) -> HttpResponse:
        """Always refuse: weights belong to trainings."""
        name = self.model.name
        raise NotFound(f"Model {name} has no weights of its own: GET /models/{name}/trainings/<name>/weightfile.")


def found_model(user: User, name: str) -> RegisteredModel:
    return existing(queries.find_model(user, name), "Model", name, "/models")


def _template(user: User, name: str) -> ModelTemplate:
    try:
        return template_named(user, name)
    except NotFound as error:
        raise field_error("templatename", error.message) from error


def _check(request: Request, values: dict[str, Any], body: dict[str, Any]) -> None:
    if values["type"].lower() != _TRAINING.lower():
        raise field_error("type", f"Models are not served here, only trained: use {_TRAINING}.")
    refuse_fields(body, _UNSUPPORTED)
    if values["sig"]:
        group_meant(signed_in(request), values["sig"])


def setting_of(name: str) -> str:
    """Return the setting that WMLA's name of a hyperparameter means; "" if there is none."""
    return _NAMES.get(name.lower()) or setting_named(name)


def _engine(name: str) -> str:
    for known, engine in _ENGINES.items():
        if known.lower() == name.lower():
            return engine
    raise field_error("accelerator", f"Accelerator {shown_text(name)} is not known: use {', '.join(_ENGINES)}.")


def _settings_of(given: Any, batch_size: Any = None) -> dict[str, Any]:
    """Return the settings, not validated. Refuse an unknown one unless it is empty, 0, false or PyTorch's default."""
    if not isinstance(given, Mapping | None):
        raise _refused('Send hyperparameter as an object, such as {"learningrate": 0.1}.')
    values = {str(name): value for name, value in (given or {}).items()}
    settings: dict[str, Any] = {} if batch_size in (None, "") else {"batch_size": batch_size}
    policy = values.get("lrpolicy")
    if isinstance(policy, str) and policy.lower() == _PLATEAU and "factor" in values:
        settings["gamma"] = values.pop("factor")
    for name, value in values.items():
        if name in _NAMES:
            settings[_NAMES[name]] = _joined(value)
        elif name == "factor" and value not in (None, "", 0, 0.1):
            raise _refused(f"factor belongs to the policy {_PLATEAU}: remove it, or choose that policy as lrpolicy.")
        elif name != "factor" and (name not in _FIXED or not _changes_nothing(name, value)):
            raise _refused(
                f"hyperparameter.{name[:50]} is not supported: use {', '.join(_NAMES)} or factor. Set other options in "
                "the script."
            )
    return settings


def _hyperparameters_of(settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the hyperparameters of the chosen settings."""
    found = {name: settings[ours] for name, ours in _NAMES.items() if ours in settings}
    if settings.get("lr_policy") == _PLATEAU and "gamma" in found:
        found["factor"] = found.pop("gamma")
    return found


def _changes_nothing(name: str, value: Any) -> bool:
    return not value or (isinstance(value, str | int | float) and value in _FIXED[name])


def _joined(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _refused(sentence: str) -> Exception:
    return field_error("hyperparameter", sentence)


urls: list[URLPattern] = [
    route("models", Models, "models"),
    route("models/<model>", Model, "model"),
    route("models/<model>/files", ModelFiles, "model-files"),
    route("models/<model>/files/<path:file>", ModelFile, "model-file"),
    route("models/<model>/weightfile", ModelWeights, "model-weights"),
]
