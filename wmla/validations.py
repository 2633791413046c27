"""`/models/{m}/validations`: measurements of trained models."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, NotFound, field_error
from core.names import checked_name
from core.references import is_storable
from core.rest import signed_in, validated
from core.text import shown_text
from core.time import iso
from jobs import actions
from jobs.actions.hiding import hide
from jobs.models import Validation
from jobs.queries.validations import problem_of, validations_of_model
from wmla.lists import LIST_PARAMETERS, part_asked_for
from wmla.messages import state_word
from wmla.registered_models import ModelView
from wmla.trainings import stop_or_refuse
from wmla.view import json_body

__all__ = ["ModelValidation", "ModelValidations", "ValidationStop"]

#: WMLA's name -> where our result has it.
_METRICS = {"Top1": "accuracy", "ConfusionMatrix": "confusion"}
#: Ours beside them.
_MORE = {"Loss": "loss", "Samples": "samples"}


class WmlaValidationInput(serializers.Serializer[Any]):
    valName = serializers.CharField(max_length=10_000, trim_whitespace=False)
    trainName = serializers.CharField(max_length=255)
    metrics = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, allow_null=True, max_length=20,
        help_text="Top1, ConfusionMatrix; all are measured in any case.",
    )  # fmt: skip
    threshold = serializers.FloatField(
        default=None, allow_null=True, help_text="Belongs to metrics that are not measured here; without effect."
    )


class _PairOutput(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Top1 in percent, ConfusionMatrix [class][answer]; ours: Loss, Samples.")
    value = serializers.JSONField()


class WmlaValidationOutput(serializers.Serializer[Any]):
    valName = serializers.CharField()
    trainName = serializers.CharField()
    model = serializers.CharField()
    dataset = serializers.CharField()
    metrics = serializers.ListField(child=serializers.CharField())
    status = serializers.CharField()
    message = serializers.CharField(allow_null=True, help_text="Why there is no result although it is over; ours.")
    user = serializers.CharField()
    createTime = serializers.CharField()
    outPairs = _PairOutput(many=True)


class ModelValidations(ModelView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=WmlaValidationOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        """List the validations of the user's trainings of this model (an administrator's: all), newest first."""
        rows = part_asked_for(request, _validations(self))
        return Response([_as_json(row) for row in rows])

    @extend_schema(request=WmlaValidationInput, responses={201: WmlaValidationOutput})
    def post(self, request: Request, model: str) -> Response:
        """Queue a run on one GPU that measures the weights a training left."""
        values = validated(WmlaValidationInput, json_body(request))
        for metric in values["metrics"] or []:
            if metric not in _METRICS:
                raise field_error(
                    "metrics", f"{shown_text(metric)} is not measured here: there are {', '.join(_METRICS)}."
                )
        name = checked_name(values["valName"], field="valName")
        if _validations(self).filter(job__name=name).exists():
            raise Conflict(f"There is a validation {name} already: choose another name.")
        asked = actions.ValidationRequest(name=name)
        validation = actions.validate(self.named(values["trainName"]), asked, signed_in(request))
        return Response(_as_json(validation), status=201)


class _ValidationView(ModelView):
    def validation(self) -> Validation:
        name = self.kwargs["validation"]
        found: Validation | None = None
        if is_storable(name):
            found = _validations(self).filter(job__name=name).first()
        if found is None:
            model = self.kwargs["model"]
            raise NotFound(f"Validation {shown_text(name)} not found: list them with GET /models/{model}/validations.")
        return found


class ModelValidation(_ValidationView):
    @extend_schema(responses=WmlaValidationOutput)
    def get(self, request: Request, model: str, validation: str) -> Response:
        return Response(_as_json(self.validation()))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, model: str, validation: str) -> HttpResponse:
        """Stop it if it is not over, and list it here no more. Tidepool's own pages keep it."""
        hide(self.validation().job_id, signed_in(request).get_username())
        return HttpResponse(status=204)


class ValidationStop(_ValidationView):
    @extend_schema(request=None, responses={204: None})
    def put(self, request: Request, model: str, validation: str) -> HttpResponse:
        stop_or_refuse(request, self.validation().job, "Validation")
        return HttpResponse(status=204)


def _validations(view: ModelView) -> Any:
    return validations_of_model(view.request.user, view.model()).filter(job__hidden_at=None)


def _as_json(validation: Validation) -> dict[str, Any]:
    job, result = validation.job, validation.result
    measured = {name: result[field] for name, field in (_METRICS | _MORE).items() if result.get(field) is not None}
    return {
        "valName": job.name,
        "trainName": validation.trained.name,
        "model": job.model.model.name,
        "dataset": job.dataset.dataset.name,
        "metrics": list(_METRICS),
        "status": state_word(job.state, validation.trained.dialect),
        "message": problem_of(validation),
        "user": job.owner.get_username(),
        "createTime": iso(job.submitted_at),
        "outPairs": [{"name": name, "value": value} for name, value in measured.items()],
    }
