"""`/api/v1/replays/`: the cluster's past, played again under other rules.

Administrators of the cluster ask, and see all; others see figures of the instance groups that they may use.
"""

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.dataclass_serializers import output_of
from core.downloads import Cell, csv_chunks, file_response
from core.rest import Pages, StrictSerializer, signed_in, validated
from core.roles import is_cluster_admin, require_cluster_admin
from replay.actions import ReplaySpec, ask_for_replay, remove_replay
from replay.models import Replay
from replay.player import JOB_COLUMNS
from replay.queries import find_replay, replays
from replay.sentences import limits, sentence
from replay.visibility import PLAYS, Moment, Seen, as_seen, moments_seen, seen_jobs
from scheduling.replay.outcome import Figures

__all__ = ["ReplayDetail", "ReplayJobs", "ReplayList", "ReplayMoment", "urlpatterns"]


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


class GroupFiguresOutput(serializers.Serializer[Any]):
    counted = serializers.IntegerField(help_text="Came to their own end within the window: averages are of these.")
    recorded = FiguresOutput()
    same = FiguresOutput(many=True, help_text="Replayed under the rules as they were; two for a range.")
    other = FiguresOutput(many=True, help_text="Under those that were asked for.")


class ResultOutput(serializers.Serializer[Any]):
    """Fields that may be missing are of the whole cluster, for administrators."""

    trainings = serializers.IntegerField(required=False)
    counted = serializers.IntegerField(
        required=False, help_text="Came to their own end within the window: averages are of these."
    )
    unfinished = serializers.IntegerField(required=False)
    withdrawn = serializers.IntegerField(required=False)
    unmeasured = serializers.IntegerField(required=False)
    gpus = serializers.IntegerField(help_text="The most that the pool had.")
    recorded = FiguresOutput(required=False)
    same = FiguresOutput(many=True, required=False, help_text="Replayed under the rules as they were; two for a range.")
    other = FiguresOutput(many=True, required=False, help_text="Under those that were asked for.")
    groups = serializers.DictField(
        child=GroupFiguresOutput(), help_text="Instance group -> its figures, of those that you may use."
    )
    errors = ErrorsOutput()  # type: ignore[assignment]
    is_good = serializers.BooleanField(help_text="The errors are up to 5, 10 and 10 %.")
    is_too_large = serializers.BooleanField(help_text="One is beyond 15 %: compare nothing.")
    series = SeriesOutput(required=False)
    cpu_seconds = serializers.FloatField()


class MomentQuery(StrictSerializer):
    at = serializers.DateTimeField(help_text="Within the replay's window.")
    play = serializers.ChoiceField(PLAYS, default="same", help_text="other: as it was asked for.")


MomentOutput = output_of(Moment)


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
        return replays()

    def paginate_queryset(self, queryset: Any) -> Any:
        rows = super().paginate_queryset(queryset)
        return None if rows is None else [as_seen(replay, self.request.user) for replay in rows]

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
        return Response(ReplayOutput(as_seen(find_replay(replay), request.user)).data)

    @extend_schema(responses={204: OpenApiResponse(description="It is cancelled, and removed.")})
    def delete(self, request: Request, replay: int) -> Response:
        remove_replay(replay, signed_in(request))
        return Response(status=204)


class ReplayJobs(APIView):
    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, replay: int) -> StreamingHttpResponse:
        """Each training's times, as recorded and as replayed, as a file. Others' have no number and no name."""
        found = find_replay(replay)
        seen = seen_jobs(request.user, [row[0] for row in found.jobs])
        if is_cluster_admin(request.user):  # a training may be gone by now
            seen = {row[0]: Seen("", shown=True) for row in found.jobs} | seen
        told = ((seen[row[0]], row) for row in found.jobs if row[0] in seen)
        rows: Iterator[list[Cell]] = ([row[0] if one.shown else "", one.name, *row[1:]] for one, row in told)
        head = (JOB_COLUMNS[0], "name", *JOB_COLUMNS[1:])
        return file_response(request, csv_chunks(head, rows), f"replay-{replay}.csv", "text/csv; charset=utf-8")


class ReplayMoment(APIView):
    @extend_schema(parameters=[MomentQuery], responses=MomentOutput(many=True))
    def get(self, request: Request, replay: int) -> Response:
        """What each training had at a moment of the replay, and why. Others' are without number and reason."""
        found, asked = find_replay(replay), validated(MomentQuery, request.query_params)
        moments = moments_seen(found, asked["play"], asked["at"], signed_in(request))
        return Response(MomentOutput([moment for moment, _ in moments], many=True).data)


urlpatterns = [
    path("replays/", ReplayList.as_view(), name="replays"),
    path("replays/<int:replay>/", ReplayDetail.as_view(), name="replay"),
    path("replays/<int:replay>/moment/", ReplayMoment.as_view(), name="replay-moment"),
    path("replays/<int:replay>/jobs.csv", ReplayJobs.as_view(), name="replay-jobs"),
]
