"""`/models/{m}/trainings`: the jobs of a model, by the names that they were given."""

from __future__ import annotations

import shlex
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import file_response
from core.errors import Conflict, NotFound, UserError, field_error
from core.rest import signed_in, validated
from core.text import shown_text
from core.time import iso
from jobs import actions
from jobs.actions.beginning import final_weights
from jobs.actions.hiding import hide
from jobs.files.result import file_chunks
from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModelVersion
from wmla.identities import Dialect
from wmla.lists import LIST_PARAMETERS, part_asked_for
from wmla.lookup import group_of, identities, submitted
from wmla.messages import state_word
from wmla.registered_models import ModelView
from wmla.submission import usual_group
from wmla.view import json_body

__all__ = [
    "Training",
    "TrainingNames",
    "TrainingStop",
    "TrainingView",
    "TrainingWeights",
    "Trainings",
    "stop_or_refuse",
]

_WEIGHTS = "model/train/model_epoch_final.pth"
#: What else may be sent, by what it is about, if it is not empty.
_NOT_HERE = {
    "wtURL": "weights come from an earlier training of yours: give its name as wfinit",
    "wtfolder": "weights come from an earlier training of yours: give its name as wfinit",
    "cmd": "what a script takes is set in its model",
}


class WmlaTrainingInput(serializers.Serializer[Any]):
    trainName = serializers.CharField(max_length=10_000, trim_whitespace=False)
    clusterSize = serializers.IntegerField(help_text="GPUs at most.")
    dlFramework = serializers.CharField(max_length=64, help_text="PyTorch.")
    gpuRatio = serializers.IntegerField(default=1, allow_null=True, help_text="GPUs of each worker: 1.")
    syncMode = serializers.CharField(max_length=64, default="SYNC", allow_null=True, help_text="SYNC.")
    wfinit = serializers.CharField(
        max_length=255, default="", allow_blank=True, allow_null=True,
        help_text="Name of a training of this model with whose weights it begins.",
    )  # fmt: skip
    dataset = serializers.CharField(
        max_length=255, default="", allow_blank=True, allow_null=True, help_text="Ours. Absent: the model's."
    )
    sigId = serializers.CharField(
        max_length=300, default="", allow_blank=True, allow_null=True,
        help_text="Ours: the instance group, by id or name. Absent: one of yours, else the largest of everybody's.",
    )  # fmt: skip


class _ParametersOutput(serializers.Serializer[Any]):
    sigId = serializers.CharField()
    sigName = serializers.CharField()
    sigMasterUrl = serializers.CharField(allow_null=True, help_text="There is no Spark here.")
    driverid = serializers.CharField()
    cmd = serializers.CharField()
    trainName = serializers.CharField()
    dlFramework = serializers.CharField()
    status = serializers.CharField()
    appid = serializers.CharField()
    appURL = serializers.CharField()
    createTime = serializers.CharField()
    user = serializers.CharField()
    progress = serializers.IntegerField(allow_null=True, help_text="Percent; null while unknown.")
    historyServerUrl = serializers.CharField(allow_null=True, help_text="There is no Spark here.")
    clusterSize = serializers.IntegerField()


class WmlaTrainingOutput(serializers.Serializer[Any]):
    model = serializers.CharField()
    dataset = serializers.CharField()
    trainingParameters = _ParametersOutput()


class Trainings(ModelView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaTrainingOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        """List the user's trainings of this model, newest first (an administrator sees everybody's)."""
        rows = part_asked_for(request, self.trainings().order_by("-id"))
        return Response([_as_json(request, row) for row in rows])

    @extend_schema(request=WmlaTrainingInput, responses={201: WmlaTrainingOutput})
    def post(self, request: Request, model: str) -> Response:
        """Queue a training. The instance group may also stand in the address, as `sigName`."""
        newest, body = self.newest(), json_body(request)
        values = validated(WmlaTrainingInput, body)
        _check(values, body, newest)
        name = values["trainName"]
        if self.trainings().filter(name=name, owner=signed_in(request)).exists():
            raise Conflict(f"There is a training {shown_text(name)} already: choose another name.")
        submission = actions.Submission(
            name=name,
            model=newest.model.name,
            dataset=values["dataset"] or newest.default_dataset,
            instance_group=self._group(values["sigId"] or request.query_params.get("sigName", "")).name,
            max_slots=values["clusterSize"],
            initial_weights=self.named(values["wfinit"]).pk if values["wfinit"] else None,
            dialect=Dialect.ON_PREM,
        )
        job = actions.submit(submission, signed_in(request))
        return Response(_as_json(request, job), status=201)

    def _group(self, identifier: str) -> InstanceGroup:
        user = signed_in(self.request)
        if not identifier:
            return usual_group(user)
        try:
            return group_of(user, identifier)
        except NotFound as error:
            raise UserError(error.message) from error


class TrainingNames(ModelView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=serializers.ListSerializer(child=serializers.CharField()))
    def get(self, request: Request, model: str) -> Response:
        rows = part_asked_for(request, self.trainings().order_by("-id"))
        return Response([row.name for row in rows])


class TrainingView(ModelView):
    def training(self) -> Job:
        return self.named(self.kwargs["training"])


class Training(TrainingView):
    @extend_schema(responses=WmlaTrainingOutput)
    def get(self, request: Request, model: str, training: str) -> Response:
        return Response(_as_json(request, self.training()))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, model: str, training: str) -> HttpResponse:
        """Stop it if it is not over, and list it here no more. Tidepool's own pages keep it."""
        hide(self.training().pk, signed_in(request).get_username())
        return HttpResponse(status=204)


class TrainingStop(TrainingView):
    @extend_schema(request=None, responses={204: None})
    def put(self, request: Request, model: str, training: str) -> HttpResponse:
        stop_or_refuse(request, self.training(), "Training")
        return HttpResponse(status=204)


class TrainingWeights(TrainingView):
    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, model: str, training: str) -> StreamingHttpResponse:
        """Download the weights that it ended with, as `torch.save` wrote them."""
        job = self.training()
        if final_weights(job) is None:
            raise NotFound(f"Training {job.name} has left no weights yet: wait until it is FINISHED.")
        return file_response(request, file_chunks(job, _WEIGHTS), "model_epoch_final.pth", "application/octet-stream")


def stop_or_refuse(request: Request, job: Job, what: str) -> None:
    """Stop the job, or refuse if it is over. what: "Training" or "Validation", for the sentence."""
    if job.finished_at is not None:
        raise UserError(f"{what} {job.name} is already stopped.")
    actions.cancel(job.pk, signed_in(request).get_username())


def _check(values: dict[str, Any], body: dict[str, Any], newest: RegisteredModelVersion) -> None:
    framework = newest.framework
    if values["dlFramework"].lower() != framework.lower():
        raise field_error("dlFramework", f"Models are trained by {framework} here: give that as dlFramework.")
    if (values["syncMode"] or "SYNC").upper() != "SYNC":
        raise field_error("syncMode", "Workers are always in step here: use SYNC.")
    if values["gpuRatio"] not in (None, 1):
        raise field_error("gpuRatio", "Each worker has exactly one GPU: give 1 as gpuRatio.")
    if not values["dataset"] and not newest.default_dataset:
        raise field_error("dataset", f"Model {newest.model.name} has no dataset: PUT one to it, or send its name.")
    for name, advice in _NOT_HERE.items():
        if body.get(name):
            raise field_error(name, f"{name} is not supported: {advice}.")


def _as_json(request: Request, job: Job) -> dict[str, Any]:
    ids, of = identities(), submitted(job)
    words = [word for name, value in job.parameters.items() for word in (f"--{name}", str(value))]
    return {
        "model": job.model.model.name,
        "dataset": job.dataset.dataset.name,
        "trainingParameters": {
            "sigId": ids.group_id(job.instance_group_id),
            "sigName": job.instance_group.name,
            "sigMasterUrl": None,
            "driverid": ids.driver_id(of),
            "cmd": shlex.join([job.model.entry_point, *words, *job.arguments]),
            "trainName": job.name,
            "dlFramework": job.model.framework,
            "status": state_word(job.state, job.dialect),
            "appid": ids.app_id(of),
            "appURL": request.build_absolute_uri(f"/jobs/{job.pk}/"),
            "createTime": iso(job.submitted_at),
            "user": job.owner.get_username(),
            "progress": None if job.run.progress is None else round(100 * job.run.progress),
            "historyServerUrl": None,
            "clusterSize": job.max_slots,
        },
    }
