"""`/api/v1/usage/` and `gpu-prices/`: GPU usage by user, group, training, host or model, its cost, and prices."""

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
from usage.usage_query import BY, RANGES, parse_query
from usage.usage_report import Report, Row, report
from usage.usage_window import Band, Timeline

__all__ = ["GpuPriceDetail", "GpuPriceList", "Usage", "urlpatterns"]

_MAX_ROWS = 1000
_TABLE_HEAD = (
    *("by", "id", "name", "from", "to"),
    *("allocated_seconds", "busy_seconds", "idle_seconds", "not_measured_seconds", "gpu_hours"),
    *("cost", "currency", "unpriced_seconds", "training_seconds"),
)


class CsvRenderer(BaseRenderer):
    """Renders CSV: the chunks that a view made with `csv_chunks`, or the sentence of an error."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data["error"]).encode() if isinstance(data, dict) else b"".join(data)


class UsageQuery(serializers.Serializer[Any]):
    range = serializers.ChoiceField(list(RANGES), default="24h", help_text="A window that ends now.")
    to = serializers.CharField(required=False, help_text="Default: now. At most 400 days after `from`.")
    by = serializers.ChoiceField(list(BY), default="user")
    step = serializers.CharField(default="auto", help_text="Length of a timeline step in seconds: 60, 300 … 86400.")
    part = serializers.ChoiceField(["table", "timeline"], default="table", help_text="Content of the CSV file.")


class Key(serializers.IntegerField):
    """Id of a user, group or job; null for hosts and GPU models, which have names only."""

    def to_representation(self, value: Any) -> Any:
        return value if isinstance(value, int) else None


class Seconds(serializers.FloatField):
    """Seconds, from milliseconds."""

    def to_representation(self, value: Any) -> Any:
        return value / 1000


class Moment(serializers.CharField):
    """Time in ISO 8601, from milliseconds since 1970."""

    def to_representation(self, value: Any) -> Any:
        return iso(moment(value))


def _gpus(**options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.FloatField(), **options)


class UsageRow(serializers.Serializer[Row]):
    id = Key(source="key", allow_null=True, help_text="Id of the user, group or job; null for other rows.")
    name = serializers.CharField(source="label")
    allocated_seconds = Seconds(
        source="amount.held", help_text="GPU-seconds held within the window, cut exactly at its edges."
    )
    training_seconds = Seconds(
        source="amount.training",
        help_text="Allocated GPU-seconds spent training. During the rest, the GPU was starting or releasing: "
        "a process started, moved or ended.",
    )
    busy_seconds = Seconds(source="amount.busy")
    idle_seconds = Seconds(source="amount.idle", help_text="Held, with a utilization below 5 %.")
    not_measured_seconds = Seconds(source="amount.unmeasured", help_text="Held, but not measured by the host.")
    cost = serializers.CharField(source="money", allow_null=True, help_text="null: no GPU had a price.")
    unpriced_seconds = Seconds(
        source="cost.unpriced", help_text="GPU-seconds of models that had no price at the time; not in `cost`."
    )


class UsageBand(serializers.Serializer[Band]):
    id = Key(source="key", allow_null=True)
    name = serializers.CharField(source="label")
    gpus = _gpus(help_text="Mean number of GPUs in each step.")


class UsageTimeline(serializers.Serializer[Timeline]):
    step = serializers.IntegerField(
        source="step_seconds",
        allow_null=True,
        help_text="Seconds in a step; null: each change begins a step.",
    )
    at = serializers.ListField(child=Moment(), source="beginnings", help_text="Start of each step.")
    bands = UsageBand(many=True)
    allocated = _gpus(source="held")
    training = _gpus()
    busy = _gpus()
    idle = _gpus()
    capacity = _gpus()


class UsageOutput(serializers.Serializer[Report]):
    to = Moment(source="query.end")
    by = serializers.CharField(source="query.by")
    currency = serializers.CharField()
    total = UsageRow()
    rows = UsageRow(many=True, help_text="Largest first. Rows that you may not see by name are summed in `others`.")
    left_out = serializers.IntegerField(help_text="Number of rows summed in `others` for length; CSV has them all.")
    timeline = UsageTimeline()

    def get_fields(self) -> Any:
        # `from` is a Python keyword.
        return {"from": Moment(source="query.start"), **super().get_fields()}


class Usage(APIView):
    renderer_classes = (StrictJSONRenderer, CsvRenderer)

    @extend_schema(
        parameters=[
            OpenApiParameter("from", description="A time such as 2026-03-01T12:00Z, or a day. Default zone: UTC."),
            UsageQuery,
            OpenApiParameter("format", enum=["json", "csv"], description="Overrides the header Accept."),
        ],
        responses={200: UsageOutput, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Return the GPU-hours of a window, their cost, and the number of GPUs held over time."""
        now = to_ms(timezone.now())
        query = parse_query(request.query_params.dict(), now)
        if request.accepted_renderer.format != "csv":
            return Response(UsageOutput(report(signed_in(request), query, now, _MAX_ROWS)).data)
        found = report(signed_in(request), query, now)
        name, head, rows = f"usage-by-{query.by}.csv", list(_TABLE_HEAD), _table_rows(found)
        if request.query_params.get("part") == "timeline":
            bands = [str(safe_cell(band.label)) for band in found.timeline.bands]
            head = ["from", "to", *bands, "allocated", "busy", "idle", "capacity", "training"]
            name, rows = f"usage-by-{query.by}-timeline.csv", _timeline_rows(found)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(list(csv_chunks(head, rows)), headers=headers)


def _table_rows(found: Report) -> Iterator[list[Cell]]:
    window = {"from": iso(moment(found.query.start)), "to": iso(moment(found.query.end)), "by": found.query.by}
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
    gpu_model = serializers.CharField(max_length=128, help_text="Name of the GPU model, as in `slots/`.")
    valid_from = serializers.DateField(help_text="First day of the price. Days begin at midnight in UTC.")
    per_hour = serializers.DecimalField(max_digits=12, decimal_places=4, min_value=0)


class PriceOutput(serializers.ModelSerializer[GpuPrice]):
    class Meta:
        model = GpuPrice
        fields = ["id", "gpu_model", "valid_from", "per_hour"]


class GpuPriceList(ListAPIView[GpuPrice]):
    """List all prices by GPU model, newest first."""

    serializer_class = PriceOutput
    pagination_class = None
    queryset = GpuPrice.objects.order_by("gpu_model", "-valid_from")

    @extend_schema(request=PriceInput, responses={201: PriceOutput})
    def post(self, request: Request) -> Response:
        """Set the price from a day on, or replace the price of that day. Administrators of the cluster only."""
        given = validated(PriceInput, request.data)
        return Response(PriceOutput(set_price(signed_in(request), **given)).data, status=201)


class GpuPriceDetail(APIView):
    @extend_schema(responses={204: OpenApiResponse(description="The price was removed.")})
    def delete(self, request: Request, price: int) -> Response:
        remove_price(signed_in(request), price)
        return Response(status=204)


urlpatterns = [
    path("usage/", Usage.as_view(), name="usage"),
    path("gpu-prices/", GpuPriceList.as_view(), name="gpu-prices"),
    path("gpu-prices/<int:price>/", GpuPriceDetail.as_view(), name="gpu-price"),
]
