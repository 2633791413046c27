"""`/models/{m}/trainings` and `/validations`: the jobs of a model, identified by their names."""

import shlex
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import STORED_FILE, stored_file_response
from core.errors import Conflict, NotFound, field_error
from core.rest import signed_in, validated
from core.text import checked_name, is_storable, shown_text
from core.time import iso
from jobs import actions
from jobs.actions.initial_state import final_weights
from jobs.actions.job_commands import hide
from jobs.files.result_files import open_result
from jobs.models import Job, Validation
from jobs.queries.jobs import validation_problem, validations_of_model
from models_registry.models import RegisteredModelVersion
from wmla.answer_fields import Address, Many, Text, Texts, Whole
from wmla.base_view import LIST_PARAMETERS, json_body, refuse_fields, requested_rows, route, stop
from wmla.identifiers import existing, group_meant, identities, submitted
from wmla.job_names import Dialect, state_word
from wmla.registered_models import ModelView
from wmla.submission import default_group

__all__ = ["urls"]

_WEIGHTS = "model/train/model_epoch_final.pth"
#: Unsupported field -> advice. Empty values are accepted.
_UNSUPPORTED = {
    "wtURL": "to start from weights, name an earlier training of yours as wfinit",
    "wtfolder": "to start from weights, name an earlier training of yours as wfinit",
    "cmd": "set the script's options in its model",
}
#: WMLA's name of a metric -> the field of the result.
_METRICS = {"Top1": "accuracy", "ConfusionMatrix": "confusion"}
#: Additional metrics that WMLA does not have.
_MORE_METRICS = {"Loss": "loss", "Samples": "samples"}


class WmlaTrainingInput(serializers.Serializer[Any]):
    trainName = serializers.CharField(max_length=10_000, trim_whitespace=False)
    clusterSize = serializers.IntegerField(help_text="Maximum number of GPUs.")
    dlFramework = serializers.CharField(max_length=64, help_text="Always PyTorch.")
    gpuRatio = serializers.IntegerField(default=1, allow_null=True, help_text="Number of GPUs of each worker: 1.")
    syncMode = serializers.CharField(max_length=64, default="SYNC", allow_null=True, help_text="Always SYNC.")
    wfinit = serializers.CharField(
        max_length=255, default="", allow_blank=True, allow_null=True,
        help_text="Name of a training of this model whose weights it starts from.",
    )  # fmt: skip
    dataset = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        allow_null=True,
        help_text="Dataset, not in WMLA; default: the model's.",
    )
    sigId = serializers.CharField(
        max_length=300, default="", allow_blank=True, allow_null=True,
        help_text="Id or name of the instance group, not in WMLA; default: your largest, or the largest open to all.",
    )  # fmt: skip


class _ParametersOutput(serializers.Serializer[Any]):
    sigId = Text(lambda job: identities().group_id(job.instance_group_id))
    sigName = Text(source="instance_group.name")
    sigMasterUrl = Text(allow_null=True, help_text="There is no Spark here.")
    driverid = Text(lambda job: identities().driver_id(submitted(job)))
    cmd = Text(lambda job: _command(job))
    trainName = Text(source="name")
    dlFramework = Text(source="model.framework")
    status = Text(lambda job: state_word(job.state, job.dialect))
    appid = Text(lambda job: identities().app_id(submitted(job)))
    appURL = Address(lambda job: f"/jobs/{job.pk}/")
    createTime = Text(lambda job: iso(job.submitted_at))
    user = Text(source="owner.username")
    progress = Whole(
        lambda job: None if job.run.progress is None else round(100 * job.run.progress),
        allow_null=True,
        help_text="Percent; null if unknown.",
    )
    historyServerUrl = Text(allow_null=True, help_text="There is no Spark here.")
    clusterSize = Whole(source="max_slots")


class WmlaTrainingOutput(serializers.Serializer[Any]):
    model = Text(source="model.model.name")
    dataset = Text(source="dataset_name")
    trainingParameters = _ParametersOutput(source="*")


def _command(job: Job) -> str:
    words = [word for name, value in job.parameters.items() for word in (f"--{name}", str(value))]
    return shlex.join([job.model.entry_point, *words, *job.arguments])


class Trainings(ModelView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaTrainingOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        """List the user's trainings of this model (for an administrator, those of all users), newest first."""
        rows = requested_rows(request, self.trainings().order_by("-id"))
        return Response(WmlaTrainingOutput(rows, many=True, context={"request": request}).data)

    @extend_schema(request=WmlaTrainingInput, responses={201: WmlaTrainingOutput})
    def post(self, request: Request, model: str) -> Response:
        """Queue a training. The instance group may also be given in the URL, as `sigName`."""
        user, newest, body = signed_in(request), self.newest, json_body(request)
        values = validated(WmlaTrainingInput, body)
        _check(values, body, newest)
        name, group = values["trainName"], values["sigId"] or request.query_params.get("sigName", "")
        if self.trainings().filter(name=name, owner=user).exists():
            raise Conflict(f"Training {shown_text(name)} already exists: choose another name.")
        submission = actions.Submission(
            name=name,
            model=newest.model.name,
            dataset=values["dataset"] or newest.default_dataset,
            instance_group=(group_meant(user, group) if group else default_group(user)).name,
            max_slots=values["clusterSize"],
            initial_weights=self.named(values["wfinit"]).pk if values["wfinit"] else None,
            dialect=Dialect.ON_PREM,
        )
        job = actions.submit(submission, user)
        return Response(WmlaTrainingOutput(job, context={"request": request}).data, status=201)


class TrainingNames(ModelView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=serializers.ListSerializer(child=serializers.CharField()))
    def get(self, request: Request, model: str) -> Response:
        rows = requested_rows(request, self.trainings().order_by("-id"))
        return Response([row.name for row in rows])


class Training(ModelView):
    @extend_schema(responses=WmlaTrainingOutput)
    def get(self, request: Request, model: str, training: str) -> Response:
        return Response(WmlaTrainingOutput(self.named(training), context={"request": request}).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, model: str, training: str) -> HttpResponse:
        """Stop it if it is not over, and list it here no more. Tidepool's own pages keep it."""
        hide([self.named(training).pk], signed_in(request).get_username())
        return HttpResponse(status=204)


class TrainingStop(ModelView):
    @extend_schema(request=None, responses={204: None})
    def put(self, request: Request, model: str, training: str) -> HttpResponse:
        job = self.named(training)
        stop(request, job, f"Training {job.name}")
        return HttpResponse(status=204)


class TrainingWeights(ModelView):
    @extend_schema(responses=STORED_FILE)
    def get(self, request: Request, model: str, training: str) -> StreamingHttpResponse:
        """Download the final weights, in the format of `torch.save`."""
        job = self.named(training)
        if final_weights(job) is None:
            raise NotFound(f"Training {job.name} has no final weights yet: wait until it is FINISHED.")
        return stored_file_response(request, open_result(job, _WEIGHTS), "model_epoch_final.pth")


class WmlaValidationInput(serializers.Serializer[Any]):
    valName = serializers.CharField(max_length=10_000, trim_whitespace=False)
    trainName = serializers.CharField(max_length=255)
    metrics = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, allow_null=True, max_length=20,
        help_text="Top1 or ConfusionMatrix; all are always measured.",
    )  # fmt: skip
    threshold = serializers.FloatField(
        default=None, allow_null=True, help_text="Ignored: it belongs to metrics that are not measured here."
    )


class _PairOutput(serializers.Serializer[Any]):
    name = Text(
        help_text="Top1 (percent) or ConfusionMatrix ([class][answer]); also Loss and Samples, which WMLA lacks."
    )
    value = serializers.JSONField()


class WmlaValidationOutput(serializers.Serializer[Any]):
    valName = Text(source="job.name")
    trainName = Text(source="trained.name")
    model = Text(source="job.model.model.name")
    dataset = Text(source="job.dataset_name")
    metrics = Texts(lambda validation: list(_METRICS))
    status = Text(lambda validation: state_word(validation.job.state, validation.trained.dialect))
    message = Text(validation_problem, allow_null=True, help_text="Reason for a missing result; not in WMLA.")
    user = Text(source="job.owner.username")
    createTime = Text(lambda validation: iso(validation.job.submitted_at))
    outPairs = Many(lambda validation: _pairs(validation.result), child=_PairOutput())


def _pairs(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = {name: result.get(field) for name, field in (_METRICS | _MORE_METRICS).items()}
    return [{"name": name, "value": value} for name, value in found.items() if value is not None]


class ValidationView(ModelView):
    def validations(self) -> QuerySet[Validation]:
        """Return the validations of this model's trainings that the user may see."""
        return validations_of_model(signed_in(self.request), self.model).filter(job__hidden_at=None)

    def validation(self) -> Validation:
        name = self.kwargs["validation"]
        row = self.validations().filter(job__name=name).first() if is_storable(name) else None
        return existing(row, "Validation", name, f"/models/{self.kwargs['model']}/validations")


class ModelValidations(ValidationView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaValidationOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        """List the validations of the user's trainings of this model (for an administrator, of all users), newest
        first."""
        rows = requested_rows(request, self.validations())
        return Response(WmlaValidationOutput(rows, many=True).data)

    @extend_schema(request=WmlaValidationInput, responses={201: WmlaValidationOutput})
    def post(self, request: Request, model: str) -> Response:
        """Queue a run on one GPU that measures the final weights of a training."""
        there, values = self.validations(), validated(WmlaValidationInput, json_body(request))
        for metric in values["metrics"] or []:
            if metric not in _METRICS:
                raise field_error("metrics", f"{shown_text(metric)} is not measured here: use {', '.join(_METRICS)}.")
        name = checked_name(values["valName"], field="valName")
        if there.filter(job__name=name).exists():
            raise Conflict(f"Validation {name} already exists: choose another name.")
        asked = actions.ValidationRequest(name=name)
        validation = actions.validate(self.named(values["trainName"]), asked, signed_in(request))
        return Response(WmlaValidationOutput(validation).data, status=201)


class ModelValidation(ValidationView):
    @extend_schema(responses=WmlaValidationOutput)
    def get(self, request: Request, model: str, validation: str) -> Response:
        return Response(WmlaValidationOutput(self.validation()).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, model: str, validation: str) -> HttpResponse:
        """Stop it if it is not over, and list it here no more. Tidepool's own pages keep it."""
        hide([self.validation().job_id], signed_in(request).get_username())
        return HttpResponse(status=204)


class ValidationStop(ValidationView):
    @extend_schema(request=None, responses={204: None})
    def put(self, request: Request, model: str, validation: str) -> HttpResponse:
        job = self.validation().job
        stop(request, job, f"Validation {job.name}")
        return HttpResponse(status=204)


def _check(values: dict[str, Any], body: dict[str, Any], newest: RegisteredModelVersion) -> None:
    framework = newest.framework
    if values["dlFramework"].lower() != framework.lower():
        raise field_error("dlFramework", f"Models are trained with {framework} here: send that as dlFramework.")
    if (values["syncMode"] or "SYNC").upper() != "SYNC":
        raise field_error("syncMode", "Workers are always synchronous here: use SYNC.")
    if values["gpuRatio"] not in (None, 1):
        raise field_error("gpuRatio", "Each worker has exactly one GPU: send 1 as gpuRatio.")
    if not values["dataset"] and not newest.default_dataset:
        raise field_error(
            "dataset",
            f"Model {newest.model.name} has no default dataset: send dataset, or set it with PUT /models/<model>.",
        )
    refuse_fields(body, _UNSUPPORTED)


urls: list[URLPattern] = [
    route("models/<model>/trainingnames", TrainingNames, "training-names"),
    route("models/<model>/trainings", Trainings, "trainings"),
    route("models/<model>/trainings/<training>", Training, "training"),
    route("models/<model>/trainings/<training>/stop", TrainingStop, "training-stop"),
    route("models/<model>/trainings/<training>/weightfile", TrainingWeights, "training-weights"),
    route("models/<model>/validations", ModelValidations, "validations"),
    route("models/<model>/validations/<validation>", ModelValidation, "validation"),
    route("models/<model>/validations/<validation>/stop", ValidationStop, "validation-stop"),
]
