"""Validations of trained models, and the trainings of a model."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.errors import existing
from core.rest import Pages, ReferenceField, signed_in, validated
from jobs import actions
from jobs.files.validation_runs import ClassScore, class_scores
from jobs.models import Job, Validation
from jobs.queries import jobs as queries
from jobs.queries.jobs import validation_problem, validations_of_job, validations_of_model
from jobs.queries.serializers import JobOutput, Moment
from jobs.states import JobState
from models_registry.queries import find_model

__all__ = ["JobValidations", "ModelTrainings", "ModelValidations", "ValidationInput", "ValidationOutput"]


class ValidationInput(serializers.Serializer[actions.ValidationRequest]):
    split = serializers.ChoiceField(
        Validation.Split.choices,
        default=Validation.Split.VALIDATION,
        help_text="A script with a single held-out set is evaluated on it: see `split` of the result.",
    )
    dataset = ReferenceField(
        default=None, allow_null=True, help_text="Absent: the version that the job was trained on."
    )
    instance_group = ReferenceField(default=None, allow_null=True, help_text="Absent: the training's.")
    priority = serializers.IntegerField(default=None, allow_null=True, help_text="Absent: the training's.")


_ClassOutput = output_of(ClassScore, "_ClassOutput")


@extend_schema_field(_ClassOutput(many=True))
class _ClassesField(serializers.Field[Any, Any, Any, Any]):
    def to_representation(self, value: Validation) -> Any:
        return _ClassOutput(class_scores(value.result.get("confusion") or []), many=True).data


class _ProblemField(serializers.CharField):
    def to_representation(self, value: Any) -> Any:
        return validation_problem(value)


class ValidationOutput(serializers.Serializer[Validation]):
    job = serializers.IntegerField(source="job_id", help_text="The validation run: see `jobs/{id}/`.")
    trained = serializers.IntegerField(source="trained_id", help_text="The job whose weights are evaluated.")
    model = serializers.CharField(source="job.model.model.name")
    version = serializers.IntegerField(source="job.model.number")
    dataset = serializers.CharField(source="job.dataset.dataset.name")
    dataset_version = serializers.IntegerField(source="job.dataset.number")
    state = serializers.ChoiceField([state.value for state in JobState], source="job.state")
    asked_for = serializers.CharField(source="split", help_text="Requested split: validation or testing.")
    split = serializers.CharField(
        source="result.split", allow_null=True, help_text="Evaluated split: validation, testing or held-out."
    )
    samples = serializers.IntegerField(source="result.samples", allow_null=True)
    loss = serializers.FloatField(
        source="result.loss", allow_null=True, help_text="Mean over the samples; null if not finite."
    )
    accuracy = serializers.FloatField(
        source="result.accuracy", allow_null=True, help_text="Top-1, in percent; null without classes."
    )
    confusion = serializers.ListField(
        source="result.confusion",
        child=serializers.ListField(child=serializers.IntegerField()),
        allow_null=True,
        help_text="[i][j]: number of samples of class i that were classified as j.",
    )
    classes = _ClassesField(source="*")
    problem = _ProblemField(source="*", allow_null=True, help_text="Reason why a finished run has no result.")
    submitted_at = Moment(source="job.submitted_at")
    finished_at = Moment(source="job.finished_at", allow_null=True)


class _ByJob(Pages):
    ordering = "-job_id"


class JobValidations(ListAPIView[Validation]):
    """The validations of a training."""

    serializer_class = ValidationOutput
    pagination_class = _ByJob
    queryset = Validation.objects.none()

    def get_queryset(self) -> Any:
        return validations_of_job(queries.get_visible_job(self.request.user, self.kwargs["job"]))

    @extend_schema(request=ValidationInput, responses={201: ValidationOutput})
    def post(self, request: Request, job: int) -> Response:
        """Queue a run on one GPU that evaluates the training's weights."""
        given = validated(ValidationInput, request.data)
        trained = queries.get_visible_job(request.user, job)
        validation = actions.validate(trained, actions.ValidationRequest(**given), signed_in(request))
        return Response(ValidationOutput(validation).data, status=201)


class ModelValidations(ListAPIView[Validation]):
    """The validations of the user's trainings with a model (an administrator sees everybody's)."""

    serializer_class = ValidationOutput
    pagination_class = _ByJob
    queryset = Validation.objects.none()

    def get_queryset(self) -> Any:
        return validations_of_model(
            self.request.user, existing(find_model(self.request.user, self.kwargs["reference"]), "model")
        )


class ModelTrainings(ListAPIView[Job]):
    """The user's trainings with any version of a model (an administrator sees everybody's)."""

    serializer_class = JobOutput
    pagination_class = Pages
    queryset = Job.objects.none()

    def get_queryset(self) -> Any:
        model = existing(find_model(self.request.user, self.kwargs["reference"]), "model")
        return queries.visible_jobs(self.request.user).filter(model__model=model, validation=None)
