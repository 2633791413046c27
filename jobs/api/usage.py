"""`/api/v1/usage/` and `gpu-prices/`: the GPUs that were used, by whom, for what and at which cost."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.csv_text import csv_chunks
from core.rest import StrictJSONRenderer, StrictSerializer, signed_in, validated
from jobs.models import GpuPrice
from jobs.usage.intervals import to_ms
from jobs.usage.prices import prices, remove_price, set_price
from jobs.usage.query import BY, RANGES, parsed
from jobs.usage.report import report
from jobs.usage.shapes import TABLE_HEAD, as_json, table_rows, timeline_head, timeline_rows

__all__ = ["GpuPriceDetail", "GpuPriceList", "Usage"]

_MOST_ROWS = 1000


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


class UsageRow(serializers.Serializer[Any]):
    id = serializers.IntegerField(allow_null=True, help_text="Of the user, group or job.")
    name = serializers.CharField()
    allocated_seconds = serializers.FloatField(help_text="Seconds times GPUs, cut exactly at the window's edges.")
    busy_seconds = serializers.FloatField()
    idle_seconds = serializers.FloatField(help_text="Held and below 5 % of utilisation.")
    not_measured_seconds = serializers.FloatField(help_text="Virtual GPUs, and hosts that did not tell.")
    cost = serializers.CharField(allow_null=True, help_text="null: nothing of it had a price.")
    unpriced_seconds = serializers.FloatField(help_text="Of GPU models without a price then.")


class UsageBand(serializers.Serializer[Any]):
    id = serializers.IntegerField(allow_null=True)
    name = serializers.CharField()
    gpus = serializers.ListField(child=serializers.FloatField(), help_text="The mean of each step.")


class UsageTimeline(serializers.Serializer[Any]):
    step = serializers.IntegerField(allow_null=True, help_text="Seconds; null: each change begins a step.")
    at = serializers.ListField(child=serializers.CharField(), help_text="Where each step begins.")
    bands = UsageBand(many=True)
    allocated = serializers.ListField(child=serializers.FloatField())
    busy = serializers.ListField(child=serializers.FloatField())
    idle = serializers.ListField(child=serializers.FloatField())
    capacity = serializers.ListField(child=serializers.FloatField())


class UsageOutput(serializers.Serializer[Any]):
    to = serializers.CharField()
    by = serializers.CharField()
    currency = serializers.CharField()
    total = UsageRow()
    rows = UsageRow(many=True, help_text="The most first; what you may not read by name is `others`.")
    left_out = serializers.IntegerField(help_text="How many more are in `others`; CSV has all.")
    timeline = UsageTimeline()

    def get_fields(self) -> Any:
        # `from` is a word of Python.
        return {"from": serializers.CharField(), **super().get_fields()}


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
            return Response(as_json(report(signed_in(request), asked, now, _MOST_ROWS)))
        found = report(signed_in(request), asked, now)
        is_timeline = request.query_params.get("part") == "timeline"
        chunks = (
            csv_chunks(timeline_head(found), timeline_rows(found))
            if is_timeline
            else csv_chunks(TABLE_HEAD, table_rows(found))
        )
        name = f"usage-by-{asked.by}{'-timeline' if is_timeline else ''}.csv"
        return Response(list(chunks), headers={"Content-Disposition": f'attachment; filename="{name}"'})


class PriceInput(StrictSerializer):
    gpu_model = serializers.CharField(max_length=128, help_text="As `slots/` names it.")
    valid_from = serializers.DateField(help_text="A day; its midnight is that of UTC.")
    per_hour = serializers.DecimalField(max_digits=12, decimal_places=4, min_value=0)


class PriceOutput(serializers.ModelSerializer[GpuPrice]):
    class Meta:
        model = GpuPrice
        fields = ["id", "gpu_model", "valid_from", "per_hour"]


class GpuPriceList(APIView):
    @extend_schema(responses=PriceOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all prices, those of a model newest first."""
        return Response(PriceOutput(prices(), many=True).data)

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
