"""Answers about a job: the reason for its GPUs, the time left, previews of a change, advice."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.rest import signed_in, validated
from insights.advisor import Advice, job_advice
from insights.advisor import JobAdvice as AdviceOfJob
from insights.batch import BatchNow
from insights.goodput import Outlook, goodput_outlook
from insights.previews import preview_change, preview_submission
from insights.time_left import Eta, time_left
from insights.why import Term, why
from jobs import actions
from jobs.api.serializers import JobChangeInput, JobInput
from jobs.api.views import JobView
from jobs.models import Job
from jobs.queries.serializers import ReasonOutput

__all__ = ["JobAdvice", "JobChangePreview", "JobEta", "JobGoodput", "JobPreview", "JobWhy"]


class RemedyOutput(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["min_slots", "max_slots", "priority", "end"])
    value = serializers.IntegerField(allow_null=True, help_text="The new value; of an end the other job.")
    target = serializers.IntegerField(help_text="GPUs that it would then have.")
    starts_now = serializers.BooleanField()
    text = serializers.CharField()


class WhyOutput(serializers.Serializer[Any]):
    text = serializers.CharField()
    terms = output_of(Term)(many=True)
    remedies = RemedyOutput(many=True)


class EtaOutput(serializers.Serializer[Eta]):
    earliest_seconds = serializers.FloatField(
        source="earliest", allow_null=True, help_text="From its newest step on; null: unknown."
    )
    latest_seconds = serializers.FloatField(source="latest", allow_null=True)
    text = serializers.CharField(help_text="What it rests on, or why it is not known.")


GoodputOutput = output_of(
    Outlook,
    "GoodputOutput",
    batch_now=output_of(BatchNow, without=["bounds"])(
        allow_null=True, help_text="As it was told last; null: it has no GPU, or its batch does not adapt."
    ),
)


class JobWhy(JobView):
    @extend_schema(responses=WhyOutput)
    def get(self, request: Request, job: int) -> Response:
        """Explain the job's reason: its arithmetic, and what would change it by the scheduler's own decision."""
        return Response(why(self.get_object(), signed_in(request)))


class JobEta(JobView):
    @extend_schema(responses=EtaOutput)
    def get(self, request: Request, job: int) -> Response:
        """Estimate the time left, as a range."""
        return Response(EtaOutput(time_left(self.get_object())).data)


class JobGoodput(JobView):
    @extend_schema(responses=GoodputOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return what more or fewer GPUs would do for the training, by what was measured of its steps."""
        return Response(GoodputOutput(goodput_outlook(self.get_object())).data)


class SpanOutput(serializers.Serializer[Any]):
    earliest_seconds = serializers.FloatField(help_text="From now.")
    latest_seconds = serializers.FloatField(allow_null=True, help_text="null: no end of the wait can be told.")


class EffectOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    visible = serializers.BooleanField(help_text="Whether it is one of those that you may see.")
    slots = serializers.IntegerField(help_text="What it would have otherwise.")
    target_slots = serializers.IntegerField()


class PreviewOutput(serializers.Serializer[Any]):
    slots = serializers.IntegerField(help_text="What it holds after the scheduler's next cycle.")
    target_slots = serializers.IntegerField(help_text="What it gets once others have given GPUs back.")
    before_slots = serializers.IntegerField(help_text="What it would have without the change.")
    reason = ReasonOutput(allow_null=True, help_text="Of the scheduler's next cycle.")
    then = ReasonOutput(allow_null=True, help_text="Once others have given GPUs back, where it waits for that.")
    others = EffectOutput(many=True, help_text="Who gets more or fewer GPUs; who loses most comes first.")
    others_text = serializers.CharField()
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="Modules that the script imports and the cluster does not have."
    )
    missing_text = serializers.CharField()
    start = SpanOutput(allow_null=True, help_text="null: nobody can say.")
    start_text = serializers.CharField()
    end = SpanOutput(allow_null=True)
    end_text = serializers.CharField(allow_blank=True)


AdviceOutput = output_of(AdviceOfJob, "AdviceOutput", advice=output_of(Advice, "AdviceItem")(many=True))


class JobPreview(GenericAPIView[Job]):
    @extend_schema(operation_id="jobs_preview", request=JobInput, responses=PreviewOutput)
    def post(self, request: Request) -> Response:
        """Predict what would happen if this were submitted now. Nothing is written."""
        given = validated(JobInput, request.data)
        return Response(preview_submission(actions.Submission(**given), signed_in(request)))


class JobChangePreview(JobView):
    @extend_schema(operation_id="jobs_change_preview", request=JobChangeInput, responses=PreviewOutput)
    def post(self, request: Request, job: int) -> Response:
        """Predict what would happen if the priority or the most slots were changed now. Nothing is written."""
        given = validated(JobChangeInput, request.data)
        return Response(preview_change(self.get_object(), actions.JobChange(**given), signed_in(request)))


class JobAdvice(JobView):
    @extend_schema(responses=AdviceOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return advice from the curves: divergence, overfitting, a plateau, GPUs without effect."""
        return Response(AdviceOutput(job_advice(self.get_object())).data)
