"""`/api/v1/checkpoints/`, and what may be changed of one."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import existing
from core.rest import Filters, Pages, StrictSerializer, keyset_answer, page_size_of, signed_in, validated
from jobs.actions.checkpoints import change_kept
from jobs.actions.model_versions import make_version
from jobs.api.serializers import CheckpointOutput
from jobs.api.views import JobView
from jobs.models import Checkpoint
from jobs.queries.checkpoints import CheckpointFilter, checkpoint_page, totals

__all__ = ["CheckpointList", "CheckpointTotals", "JobCheckpoint", "JobCheckpointVersion"]


class ListedCheckpoint(CheckpointOutput):
    job_name = serializers.CharField(source="job.name")
    owner = serializers.CharField(source="job.owner.username")
    metric = serializers.FloatField(allow_null=True, help_text="Value of the requested metric, at its step or before.")

    class Meta(CheckpointOutput.Meta):
        fields = ["job", "job_name", "owner", "metric", *CheckpointOutput.Meta.fields]


class CheckpointList(ListAPIView[Checkpoint]):
    """Checkpoints of the user's trainings, the newest first (an administrator sees everybody's)."""

    serializer_class = ListedCheckpoint
    queryset = Checkpoint.objects.none()
    pagination_class = Pages
    filter_backends = [Filters]
    filterset_class = CheckpointFilter

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        given = request.query_params.dict()
        page = checkpoint_page(signed_in(request), CheckpointFilter(given), given, page_size_of(given))
        return Response(keyset_answer(request, page, list(ListedCheckpoint(page.rows, many=True).data)))


class TotalOutput(serializers.Serializer[Any]):
    owner = serializers.CharField()
    count = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    kept_bytes = serializers.IntegerField(help_text="Bytes of kept checkpoints, beyond the number that trainings keep.")
    disk_bytes = serializers.IntegerField(
        allow_null=True,
        help_text="Room of all the user's trainings, with results, logs and code; null: the site has no limit on it.",
    )


class CheckpointTotals(GenericAPIView[Any]):
    queryset = Checkpoint.objects.none()
    pagination_class = None

    @extend_schema(operation_id="checkpoints_totals", responses=TotalOutput(many=True))
    def get(self, request: Request) -> Response:
        """Checkpoints by user, who has most of them first."""
        return Response(TotalOutput(totals(signed_in(request)), many=True).data)


class KeptInput(StrictSerializer):
    kept = serializers.BooleanField(help_text="Whether it is kept, even when newer checkpoints are written.")


class JobCheckpoint(JobView):
    @extend_schema(
        request=KeptInput,
        responses={
            200: CheckpointOutput,
            204: OpenApiResponse(description="It was removed, because newer ones have replaced it."),
        },
    )
    def patch(self, request: Request, job: int, checkpoint: int) -> Response:
        """Keep it for good, or let it go with the oldest ones."""
        kept = validated(KeptInput, request.data)["kept"]
        row = existing(Checkpoint.objects.filter(job=self.get_object(), pk=checkpoint).first(), "checkpoint")
        now = change_kept(row, kept, signed_in(request).get_username())
        return Response(CheckpointOutput(now).data) if now else Response(status=204)


class VersionInput(StrictSerializer):
    name = serializers.CharField(
        default="", allow_blank=True, max_length=10_000, trim_whitespace=False,
        help_text="Of the model, a new one or one of yours; absent: the training's model with -trained behind it.",
    )  # fmt: skip


class TrainedVersionOutput(serializers.Serializer[Any]):
    model = serializers.IntegerField(source="version.model_id")
    name = serializers.CharField(source="version.model.name")
    number = serializers.IntegerField(source="version.number")
    job = serializers.IntegerField(source="checkpoint.job_id", help_text="The training whose weights it has.")
    checkpoint = serializers.IntegerField(source="checkpoint_id", help_text="It is kept from now on.")
    step = serializers.IntegerField(source="checkpoint.step")
    sha256 = serializers.CharField(source="checkpoint.sha256")


class JobCheckpointVersion(JobView):
    @extend_schema(request=VersionInput, responses={201: TrainedVersionOutput})
    def post(self, request: Request, job: int, checkpoint: int) -> Response:
        """Make a version of a model of it: the training's code and parameters, and this checkpoint's weights."""
        name = validated(VersionInput, request.data)["name"]
        row = existing(Checkpoint.objects.filter(job=self.get_object(), pk=checkpoint).first(), "checkpoint")
        return Response(TrainedVersionOutput(make_version(row, signed_in(request), name)).data, status=201)
