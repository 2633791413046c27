"""`/api/v1/replays/`: the cluster's past, played again under other rules. For administrators of the cluster."""

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.downloads import Cell, csv_chunks, file_response
from core.outputs import output_of
from core.rest import Pages, StrictSerializer, signed_in, validated
from core.roles import require_cluster_admin
from jobs.actions.replays import ReplaySpec, ask_for_replay, remove_replay
from jobs.insight.replay import JOB_COLUMNS
from jobs.insight.replay_words import limits, sentence
from jobs.models import Job, Replay
from jobs.queries.replays import find_replay, replays
from scheduling.replay.outcome import Figures

__all__ = ["ReplayDetail", "ReplayJobs", "ReplayList"]


class ReplayInput(StrictSerializer):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    groups = serializers.DictField(
        child=serializers.DictField(),
        required=False,
        help_text="Instance group -> its policy, aim, preemption, quota, weight, borrows, lends, minimum_run_seconds.",
    )
    gpus = serializers.IntegerField(
        required=False, allow_null=True, help_text="Of the pool where it had its most; more are on further hosts."
    )
    restart_seconds = serializers.FloatField(
        required=False, allow_null=True, help_text="What each change of a training's size costs; null: as it was."
    )


FiguresOutput = output_of(Figures)


class ErrorsOutput(serializers.Serializer[Any]):
    average = serializers.FloatField(help_text="Of the average completion time, as a part of it.")
    gpus = serializers.FloatField(help_text="Area between the curves of GPUs in use, over the recorded one.")
    per_job = serializers.FloatField(help_text="Median of the trainings' own.")


class BandOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField(help_text="0: all others together.")
    steps = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="[Unix seconds, GPUs]"
    )


class SeriesOutput(serializers.Serializer[Any]):
    recorded = BandOutput(many=True)
    same = BandOutput(many=True)
    other = BandOutput(many=True, required=False)


class ResultOutput(serializers.Serializer[Any]):
    trainings = serializers.IntegerField()
    counted = serializers.IntegerField(help_text="Came to their own end within the window: averages are of these.")
    unfinished = serializers.IntegerField()
    withdrawn = serializers.IntegerField()
    unmeasured = serializers.IntegerField()
    gpus = serializers.IntegerField(help_text="The most that the pool had.")
    recorded = FiguresOutput()
    same = FiguresOutput(many=True, help_text="Replayed under the rules as they were; two for a range.")
    other = FiguresOutput(many=True, help_text="Under those that were asked for.")
    errors = ErrorsOutput()  # type: ignore[assignment]
    is_good = serializers.BooleanField(help_text="The errors are up to 5, 10 and 10 %.")
    is_too_large = serializers.BooleanField(help_text="One is beyond 15 %: compare nothing.")
    series = SeriesOutput()
    cpu_seconds = serializers.FloatField()


class ReplayRow(serializers.ModelSerializer[Replay]):
    owner = serializers.CharField(source="owner.username")

    class Meta:
        model = Replay
        fields = ["id", "owner", "created_at", "start", "end", "alternative", "state", "progress", "problem"]


class ReplayOutput(ReplayRow):
    text = serializers.SerializerMethodField(help_text="What came of it; empty until it is done.")
    limits = serializers.SerializerMethodField(help_text="What is not known of this window.")
    result = serializers.SerializerMethodField(help_text="null until it is done.")

    class Meta(ReplayRow.Meta):
        fields = [*ReplayRow.Meta.fields, "text", "limits", "result"]

    def get_text(self, replay: Replay) -> str:
        return sentence(replay) if replay.result else ""

    def get_limits(self, replay: Replay) -> list[str]:
        return limits(replay) if replay.result else []

    @extend_schema_field(ResultOutput(allow_null=True))
    def get_result(self, replay: Replay) -> Any:
        return ResultOutput(replay.result).data if replay.result else None


class ReplayList(ListAPIView[Replay]):
    """All replays, the newest first; kept for 35 days."""

    serializer_class = ReplayRow
    pagination_class = Pages

    def get_queryset(self) -> Any:
        require_cluster_admin(self.request.user)
        return replays()

    @extend_schema(request=ReplayInput, responses={202: ReplayOutput})
    def post(self, request: Request) -> Response:
        """Ask for one. It is played in the background; without anything otherwise, under the same rules."""
        require_cluster_admin(request.user)
        replay = ask_for_replay(ReplaySpec(**validated(ReplayInput, request.data)), signed_in(request))
        return Response(ReplayOutput(replay).data, status=202)


class ReplayDetail(APIView):
    @extend_schema(responses=ReplayOutput)
    def get(self, request: Request, replay: int) -> Response:
        """Return its progress, and its result."""
        require_cluster_admin(request.user)
        return Response(ReplayOutput(find_replay(replay)).data)

    @extend_schema(responses={204: OpenApiResponse(description="It is cancelled, and removed.")})
    def delete(self, request: Request, replay: int) -> Response:
        remove_replay(replay, signed_in(request))
        return Response(status=204)


class ReplayJobs(APIView):
    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, replay: int) -> StreamingHttpResponse:
        """Each training's times, as recorded and as replayed, as a file."""
        require_cluster_admin(request.user)
        found = find_replay(replay)
        names = dict(Job.objects.filter(pk__in=[row[0] for row in found.jobs]).values_list("pk", "name"))
        rows: Iterator[list[Cell]] = ([row[0], names.get(row[0], ""), *row[1:]] for row in found.jobs)
        head = (JOB_COLUMNS[0], "name", *JOB_COLUMNS[1:])
        return file_response(request, csv_chunks(head, rows), f"replay-{replay}.csv", "text/csv; charset=utf-8")
