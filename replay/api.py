"""`/api/v1/replays/`: replays of the cluster's past under other rules.

Administrators of the cluster start replays, and see all of them. Other users see the figures of their instance groups.
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
from replay.sentences import limits, result_sentence
from replay.visibility import PLAYS, Moment, VisibleJob, visible_jobs_of, visible_moments, visible_part
from scheduling.replay.outcome import Figures

__all__ = ["ReplayDetail", "ReplayJobs", "ReplayList", "ReplayMoment", "urlpatterns"]


_COUNTED = "Number of trainings that ended by themselves within the period; averages cover only these."
_SAME = "Replayed without changes; two values are a range."
_OTHER = "Replayed with the changes; two values are a range."


class ReplayInput(StrictSerializer):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    groups = serializers.DictField(
        child=serializers.DictField(),
        required=False,
        help_text="Instance group -> its policy, aim, gpu_weights, preemption, quota, weight, borrows, lends, "
        "minimum_run_seconds.",
    )
    gpus = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="Maximum size of the pool; additional GPUs are on new hosts. null: as recorded.",
    )
    restart_seconds = serializers.FloatField(
        required=False, allow_null=True, help_text="Pause at each change of a training's size; null: as recorded."
    )


FiguresOutput = output_of(Figures)


class ErrorsOutput(serializers.Serializer[Any]):
    average = serializers.FloatField(help_text="Relative error of the average completion time.")
    gpus = serializers.FloatField(help_text="Area between the curves of GPUs in use, relative to the recorded one.")
    per_job = serializers.FloatField(help_text="Median relative error of a training's completion time.")


class BandOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField(help_text="Id; 0: all other trainings together.")
    steps = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="[Unix seconds, GPUs]"
    )


class SeriesOutput(serializers.Serializer[Any]):
    recorded = BandOutput(many=True)
    same = BandOutput(many=True)
    other = BandOutput(many=True, required=False)


class GroupFiguresOutput(serializers.Serializer[Any]):
    counted = serializers.IntegerField(help_text=_COUNTED)
    recorded = FiguresOutput()
    same = FiguresOutput(many=True, help_text=_SAME)
    other = FiguresOutput(many=True, help_text=_OTHER)


class ResultOutput(serializers.Serializer[Any]):
    """Result of a replay. Only administrators get the optional fields, which cover the whole cluster."""

    trainings = serializers.IntegerField(required=False)
    counted = serializers.IntegerField(required=False, help_text=_COUNTED)
    unfinished = serializers.IntegerField(required=False)
    withdrawn = serializers.IntegerField(required=False)
    unmeasured = serializers.IntegerField(required=False)
    gpus = serializers.IntegerField(help_text="Maximum size of the pool.")
    recorded = FiguresOutput(required=False)
    same = FiguresOutput(many=True, required=False, help_text=_SAME)
    other = FiguresOutput(many=True, required=False, help_text=_OTHER)
    groups = serializers.DictField(
        child=GroupFiguresOutput(), help_text="Figures by instance group, for the groups that you may use."
    )
    errors = ErrorsOutput()  # type: ignore[assignment]
    is_good = serializers.BooleanField(help_text="Whether the errors are at most 5, 10 and 10 %.")
    is_too_large = serializers.BooleanField(help_text="Whether an error exceeds 15 %: compare nothing then.")
    series = SeriesOutput(required=False)
    cpu_seconds = serializers.FloatField()


class MomentQuery(StrictSerializer):
    at = serializers.DateTimeField(help_text="A time within the replayed period.")
    play = serializers.ChoiceField(PLAYS, default="same", help_text="same: without changes; other: with the changes.")


MomentOutput = output_of(Moment)


class ReplayRow(serializers.ModelSerializer[Replay]):
    owner = serializers.CharField(source="owner.username")

    class Meta:
        model = Replay
        fields = ["id", "owner", "created_at", "start", "end", "alternative", "state", "progress", "problem"]


class ReplayOutput(ReplayRow):
    text = serializers.SerializerMethodField(help_text="Summary of the result; empty until the replay is done.")
    limits = serializers.SerializerMethodField(help_text="Limits of the replay, as sentences.")
    result = serializers.SerializerMethodField(help_text="null until the replay is done.")

    class Meta(ReplayRow.Meta):
        fields = [*ReplayRow.Meta.fields, "text", "limits", "result"]

    def get_text(self, replay: Replay) -> str:
        return result_sentence(replay) if replay.result else ""

    def get_limits(self, replay: Replay) -> list[str]:
        return limits(replay) if replay.result else []

    @extend_schema_field(ResultOutput(allow_null=True))
    def get_result(self, replay: Replay) -> Any:
        return ResultOutput(replay.result).data if replay.result else None


class ReplayList(ListAPIView[Replay]):
    """Replays, newest first. A replay is kept for 35 days."""

    serializer_class = ReplayRow
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return replays()

    def paginate_queryset(self, queryset: Any) -> Any:
        rows = super().paginate_queryset(queryset)
        return None if rows is None else [visible_part(replay, self.request.user) for replay in rows]

    @extend_schema(request=ReplayInput, responses={202: ReplayOutput})
    def post(self, request: Request) -> Response:
        """Start a replay in the background. Without changes, it only replays the rules as they were."""
        require_cluster_admin(request.user)
        replay = ask_for_replay(ReplaySpec(**validated(ReplayInput, request.data)), signed_in(request))
        return Response(ReplayOutput(replay).data, status=202)


class ReplayDetail(APIView):
    @extend_schema(responses=ReplayOutput)
    def get(self, request: Request, replay: int) -> Response:
        """Return the progress and the result of a replay."""
        return Response(ReplayOutput(visible_part(find_replay(replay), request.user)).data)

    @extend_schema(responses={204: OpenApiResponse(description="The replay was cancelled and removed.")})
    def delete(self, request: Request, replay: int) -> Response:
        remove_replay(replay, signed_in(request))
        return Response(status=204)


class ReplayJobs(APIView):
    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, replay: int) -> StreamingHttpResponse:
        """Return a CSV file of each training's times, recorded and replayed. Other users' have neither id nor name."""
        found = find_replay(replay)
        seen = visible_jobs_of(request.user, [row[0] for row in found.jobs])
        if is_cluster_admin(request.user):  # includes trainings that were deleted since
            seen = {row[0]: VisibleJob("", shown=True) for row in found.jobs} | seen
        listed = ((seen[row[0]], row) for row in found.jobs if row[0] in seen)
        rows: Iterator[list[Cell]] = ([row[0] if one.shown else "", one.name, *row[1:]] for one, row in listed)
        head = (JOB_COLUMNS[0], "name", *JOB_COLUMNS[1:])
        return file_response(request, csv_chunks(head, rows), f"replay-{replay}.csv", "text/csv; charset=utf-8")


class ReplayMoment(APIView):
    @extend_schema(parameters=[MomentQuery], responses=MomentOutput(many=True))
    def get(self, request: Request, replay: int) -> Response:
        """Return the GPUs of each training at a time of the replay, and the reasons.

        Other users' trainings have neither id nor reason.
        """
        found, query = find_replay(replay), validated(MomentQuery, request.query_params)
        moments = visible_moments(found, query["play"], query["at"], signed_in(request))
        return Response(MomentOutput([moment for moment, _ in moments], many=True).data)


urlpatterns = [
    path("replays/", ReplayList.as_view(), name="replays"),
    path("replays/<int:replay>/", ReplayDetail.as_view(), name="replay"),
    path("replays/<int:replay>/moment/", ReplayMoment.as_view(), name="replay-moment"),
    path("replays/<int:replay>/jobs.csv", ReplayJobs.as_view(), name="replay-jobs"),
]
