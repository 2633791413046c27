"""Answers about a job: the reason for its GPUs, the time left, previews of a change, advice."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.rest import StrictJSONParser, signed_in, validated
from insights.advisor import Advice, job_advice
from insights.advisor import JobAdvice as AdviceOfJob
from insights.batch import BatchNow
from insights.goodput import Outlook, goodput_outlook
from insights.previews import preview_change, preview_submission
from insights.time_left import Eta, time_left
from insights.why import Term, why
from jobs import actions
from jobs.actions.adaptdl import submission_of
from jobs.api.adaptdl import ManifestInput, ManifestParser, manifest_of
from jobs.api.serializers import JobChangeInput, JobInput
from jobs.api.views import JobView
from jobs.models import Job
from jobs.queries.serializers import ReasonOutput

__all__ = ["AdaptDLPreview", "JobAdvice", "JobChangePreview", "JobEta", "JobGoodput", "JobPreview", "JobWhy"]


class RemedyOutput(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["min_slots", "max_slots", "priority", "end", "hosts"])
    value = serializers.IntegerField(
        allow_null=True,
        help_text="The new value; for `end` the id of the other job, for `hosts` the number of their GPUs.",
    )
    target = serializers.IntegerField(help_text="GPUs that the job would have then.")
    starts_now = serializers.BooleanField()
    text = serializers.CharField()


class WhyOutput(serializers.Serializer[Any]):
    text = serializers.CharField()
    terms = output_of(Term)(many=True)
    remedies = RemedyOutput(many=True)


class EtaOutput(serializers.Serializer[Eta]):
    earliest_seconds = serializers.FloatField(
        source="earliest", allow_null=True, help_text="Seconds from the newest step on; null: unknown."
    )
    latest_seconds = serializers.FloatField(source="latest", allow_null=True)
    text = serializers.CharField(help_text="Basis of the estimate, or why there is none.")


GoodputOutput = output_of(
    Outlook,
    "GoodputOutput",
    batch_now=output_of(BatchNow, without=["bounds"])(
        allow_null=True, help_text="The newest report; null: the job has no GPU, or its batch does not adapt."
    ),
)


class JobWhy(JobView):
    @extend_schema(responses=WhyOutput)
    def get(self, request: Request, job: int) -> Response:
        """Explain why the job has its GPUs: the arithmetic, and changes after which the scheduler decides otherwise."""
        return Response(why(self.get_object(), signed_in(request)))


class JobEta(JobView):
    @extend_schema(responses=EtaOutput)
    def get(self, request: Request, job: int) -> Response:
        """Estimate the time left, as a range."""
        return Response(EtaOutput(time_left(self.get_object())).data)


class JobGoodput(JobView):
    @extend_schema(responses=GoodputOutput)
    def get(self, request: Request, job: int) -> Response:
        """Predict the training's speed on more or fewer GPUs, from measurements of its steps."""
        return Response(GoodputOutput(goodput_outlook(self.get_object())).data)


class SpanOutput(serializers.Serializer[Any]):
    earliest_seconds = serializers.FloatField(help_text="Seconds from now.")
    latest_seconds = serializers.FloatField(
        allow_null=True, help_text="Seconds from now; null: no upper bound is known."
    )


class EffectOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    visible = serializers.BooleanField(help_text="Whether you may see this job.")
    slots = serializers.IntegerField(help_text="GPUs that it would have without the change.")
    target_slots = serializers.IntegerField()


class PreviewOutput(serializers.Serializer[Any]):
    slots = serializers.IntegerField(help_text="GPUs that it holds after the scheduler's next cycle.")
    target_slots = serializers.IntegerField(help_text="GPUs that it gets once others have given theirs back.")
    before_slots = serializers.IntegerField(help_text="GPUs that it would have without the change.")
    reason = ReasonOutput(allow_null=True, help_text="Reason of the scheduler's next cycle.")
    then = ReasonOutput(allow_null=True, help_text="Reason once others have given GPUs back; null: it waits for none.")
    others = EffectOutput(many=True, help_text="Jobs that get more or fewer GPUs, those that lose most first.")
    others_text = serializers.CharField()
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="Modules that the script imports and the cluster lacks."
    )
    missing_text = serializers.CharField()
    skipped = serializers.ListField(
        child=serializers.CharField(), help_text="Lines of the requirements that are skipped, each with the cause."
    )
    skipped_text = serializers.CharField()
    environment_text = serializers.CharField(
        allow_blank=True, help_text="The packages that the training runs with; empty: the cluster's alone."
    )
    processes_text = serializers.CharField(
        allow_blank=True, help_text="Processes of a script without a session, and their hosts; empty: one, or elastic."
    )
    start = SpanOutput(allow_null=True, help_text="null: unknown.")
    start_text = serializers.CharField()
    end = SpanOutput(allow_null=True)
    end_text = serializers.CharField(allow_blank=True)


AdviceOutput = output_of(AdviceOfJob, "AdviceOutput", advice=output_of(Advice, "AdviceItem")(many=True))


class JobPreview(GenericAPIView[Job]):
    @extend_schema(operation_id="jobs_preview", request=JobInput, responses=PreviewOutput)
    def post(self, request: Request) -> Response:
        """Predict the effects of submitting this now. Nothing is written."""
        given = validated(JobInput, request.data)
        return Response(preview_submission(actions.Submission(**given), signed_in(request)))


class AdaptDLPreview(GenericAPIView[Job]):
    parser_classes = [ManifestParser, StrictJSONParser]

    @extend_schema(
        operation_id="jobs_adaptdl_preview",
        request={"application/json": ManifestInput, "application/yaml": {"type": "string"}},
        responses=PreviewOutput,
    )
    def post(self, request: Request) -> Response:
        """Predict the effects of submitting this AdaptDLJob now. Nothing is written."""
        given, user = validated(ManifestInput, request.data), signed_in(request)
        manifest = manifest_of(given)
        return Response(preview_submission(submission_of(manifest, given, user), user))


class JobChangePreview(JobView):
    @extend_schema(operation_id="jobs_change_preview", request=JobChangeInput, responses=PreviewOutput)
    def post(self, request: Request, job: int) -> Response:
        """Predict the effects of changing the priority or the most slots now. Nothing is written."""
        given = validated(JobChangeInput, request.data)
        return Response(preview_change(self.get_object(), actions.JobChange(**given), signed_in(request)))


class JobAdvice(JobView):
    @extend_schema(responses=AdviceOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return advice from the curves: divergence, overfitting, a plateau, GPUs without effect."""
        return Response(AdviceOutput(job_advice(self.get_object())).data)
