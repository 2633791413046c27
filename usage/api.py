"""`/api/v1/usage/` and `gpu-prices/`: the GPUs that were used, by whom, for what and at which cost."""

from collections.abc import Iterator
from typing import Any

from django.urls import path
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.downloads import Cell, csv_chunks, safe_cell
from core.rest import StrictJSONRenderer, StrictSerializer, signed_in, validated
from core.time import iso
from jobs.gpu_time import HOUR, moment, to_ms
from usage.models import GpuPrice
from usage.prices import remove_price, set_price
from usage.usage_query import BY, RANGES, parsed
from usage.usage_report import Report, Row, report
from usage.usage_window import Band, Timeline

__all__ = ["GpuPriceDetail", "GpuPriceList", "Usage", "urlpatterns"]

_MOST_ROWS = 1000
_TABLE_HEAD = (
    *("by", "id", "name", "from", "to"),
    *("allocated_seconds", "busy_seconds", "idle_seconds", "not_measured_seconds", "gpu_hours"),
    *("cost", "currency", "unpriced_seconds", "training_seconds"),
)


class CsvRenderer(BaseRenderer):
    """Renderer of CSV: rows that a view has put into `csv_chunks`, or the sentence of a refusal."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data["error"]).encode() if isinstance(data, dict) else b"".join(data)


class UsageQuery(serializers.Serializer[Any]):
    range = serializers.ChoiceField(list(RANGES), default="24h", help_text="A window that ends now.")
    to = serializers.CharField(required=False, help_text="Now, unless told otherwise; at most 400 days after `from`.")
    by = serializers.ChoiceField(list(BY), default="user")
    step = serializers.CharField(default="auto", help_text="Seconds of a step of the timeline: 60, 300 … 86400.")
    part = serializers.ChoiceField(["table", "timeline"], default="table", help_text="Which of the two CSV has.")


class Key(serializers.IntegerField):
    """The number of a user, group or job; hosts and GPU models have names only."""

    def to_representation(self, value: Any) -> Any:
        return value if isinstance(value, int) else None


class Seconds(serializers.FloatField):
    """Milliseconds as seconds."""

    def to_representation(self, value: Any) -> Any:
        return value / 1000


class Moment(serializers.CharField):
    """Milliseconds since 1970 as a time."""

    def to_representation(self, value: Any) -> Any:
        return iso(moment(value))


def _gpus(**shown: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.FloatField(), **shown)


class UsageRow(serializers.Serializer[Row]):
    id = Key(source="key", allow_null=True, help_text="Of the user, group or job.")
    name = serializers.CharField(source="label")
    allocated_seconds = Seconds(
        source="amount.held", help_text="Seconds times GPUs, cut exactly at the window's edges."
    )
    training_seconds = Seconds(
        source="amount.training",
        help_text="Of the allocated ones, those in which it trained; in the others it changed hands.",
    )
    busy_seconds = Seconds(source="amount.busy")
    idle_seconds = Seconds(source="amount.idle", help_text="Held and below 5 % of utilisation.")
    not_measured_seconds = Seconds(source="amount.unmeasured", help_text="A host did not tell.")
    cost = serializers.CharField(source="money", allow_null=True, help_text="null: nothing of it had a price.")
    unpriced_seconds = Seconds(source="cost.unpriced", help_text="Of GPU models without a price then.")


class UsageBand(serializers.Serializer[Band]):
    id = Key(source="key", allow_null=True)
    name = serializers.CharField(source="label")
    gpus = _gpus(help_text="The mean of each step.")


class UsageTimeline(serializers.Serializer[Timeline]):
    step = serializers.IntegerField(
        source="step_seconds", allow_null=True, help_text="Seconds; null: each change begins a step."
    )
    at = serializers.ListField(child=Moment(), source="beginnings", help_text="Where each step begins.")
    bands = UsageBand(many=True)
    allocated = _gpus(source="held")
    training = _gpus()
    busy = _gpus()
    idle = _gpus()
    capacity = _gpus()


class UsageOutput(serializers.Serializer[Report]):
    to = Moment(source="asked.end")
    by = serializers.CharField(source="asked.by")
    currency = serializers.CharField()
    total = UsageRow()
    rows = UsageRow(many=True, help_text="The most first; what you may not read by name is `others`.")
    left_out = serializers.IntegerField(help_text="How many more are in `others`; CSV has all.")
    timeline = UsageTimeline()

    def get_fields(self) -> Any:
        # `from` is a word of Python.
        return {"from": Moment(source="asked.start"), **super().get_fields()}


class Usage(APIView):
    renderer_classes = (StrictJSONRenderer, CsvRenderer)

    @extend_schema(
        parameters=[
            OpenApiParameter("from", description="2026-03-01T12:00Z, or a day; without a zone in UTC."),
            UsageQuery,
            OpenApiParameter("format", enum=["json", "csv"], description="Or by the header Accept."),
        ],
        responses={200: UsageOutput, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Return the GPU-hours of a window with their cost, and the GPUs held over time."""
        now = to_ms(timezone.now())
        asked = parsed(request.query_params.dict(), now)
        if request.accepted_renderer.format != "csv":
            return Response(UsageOutput(report(signed_in(request), asked, now, _MOST_ROWS)).data)
        found = report(signed_in(request), asked, now)
        name, head, rows = f"usage-by-{asked.by}.csv", list(_TABLE_HEAD), _table_rows(found)
        if request.query_params.get("part") == "timeline":
            bands = [str(safe_cell(band.label)) for band in found.timeline.bands]
            head = ["from", "to", *bands, "allocated", "busy", "idle", "capacity", "training"]
            name, rows = f"usage-by-{asked.by}-timeline.csv", _timeline_rows(found)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(list(csv_chunks(head, rows)), headers=headers)


def _table_rows(found: Report) -> Iterator[list[Cell]]:
    window = {"from": iso(moment(found.asked.start)), "to": iso(moment(found.asked.end)), "by": found.asked.by}
    as_shown = UsageRow()
    for row in found.rows:
        hours = {"gpu_hours": row.amount.held / HOUR, "currency": found.currency}
        values = as_shown.to_representation(row) | window | hours
        yield [values[name] for name in _TABLE_HEAD]


def _timeline_rows(found: Report) -> Iterator[list[Cell]]:
    times = found.timeline
    columns = [*(band.gpus for band in times.bands), times.held, times.busy, times.idle, times.capacity, times.training]
    for start, end, *values in zip(times.edges[:-1], times.edges[1:], *columns, strict=True):
        yield [iso(moment(start)), iso(moment(end)), *values]


class PriceInput(StrictSerializer):
    gpu_model = serializers.CharField(max_length=128, help_text="As `slots/` names it.")
    valid_from = serializers.DateField(help_text="A day; its midnight is that of UTC.")
    per_hour = serializers.DecimalField(max_digits=12, decimal_places=4, min_value=0)


class PriceOutput(serializers.ModelSerializer[GpuPrice]):
    class Meta:
        model = GpuPrice
        fields = ["id", "gpu_model", "valid_from", "per_hour"]


class GpuPriceList(ListAPIView[GpuPrice]):
    """List all prices, those of a model newest first."""

    serializer_class = PriceOutput
    pagination_class = None
    queryset = GpuPrice.objects.order_by("gpu_model", "-valid_from")

    @extend_schema(request=PriceInput, responses={201: PriceOutput})
    def post(self, request: Request) -> Response:
        """Set a price from a day on; the same day again replaces it. For administrators of the cluster."""
        given = validated(PriceInput, request.data)
        return Response(PriceOutput(set_price(signed_in(request), **given)).data, status=201)


class GpuPriceDetail(APIView):
    @extend_schema(responses={204: OpenApiResponse(description="It is removed.")})
    def delete(self, request: Request, price: int) -> Response:
        remove_price(signed_in(request), price)
        return Response(status=204)


urlpatterns = [
    path("usage/", Usage.as_view(), name="usage"),
    path("gpu-prices/", GpuPriceList.as_view(), name="gpu-prices"),
    path("gpu-prices/<int:price>/", GpuPriceDetail.as_view(), name="gpu-price"),
]
