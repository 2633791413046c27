"""`/api/v1/capacity/wanted/` and `capacity/changes/`. Called by `webapp.api` only."""

from typing import Any

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from capacity.models import FleetChange, FleetState
from capacity.queries import WantedCapacity, wanted_capacity
from core.dataclass_serializers import output_of
from core.rest import Pages

__all__ = ["urlpatterns"]


class FleetOutput(serializers.ModelSerializer[FleetState]):
    class Meta:
        model = FleetState
        fields = ["name", "at", "hosts", "coming", "wanted", "most", "spent_month", "sentence", "retry_at"]


class CapacityOutput(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    wanted = output_of(WantedCapacity)(many=True)
    fleets = FleetOutput(many=True)


class CapacityWanted(GenericAPIView[Any]):
    """GPUs that waiting trainings would take now within their quotas, and further ones that would pay.

    For an autoscaler of your own; `fleets` shows where those of `manage.py autoscale` stand."""

    serializer_class = CapacityOutput
    pagination_class = None

    @extend_schema(responses=CapacityOutput)
    def get(self, request: Request) -> Response:
        now = timezone.now()
        found = {"at": now, "wanted": wanted_capacity(now), "fleets": FleetState.objects.all()}
        return Response(CapacityOutput(found).data)


class FleetChangeOutput(serializers.ModelSerializer[FleetChange]):
    class Meta:
        model = FleetChange
        fields = ["id", "fleet", "action", "state", "count", "hosts", "why", "note", "at", "called_at", "ended_at"]


class FleetChangeList(ListAPIView[FleetChange]):
    """Hosts that fleets were told to start and stop, the newest first."""

    serializer_class = FleetChangeOutput
    pagination_class = Pages
    queryset = FleetChange.objects.order_by("-pk")


urlpatterns = [
    path("capacity/wanted/", CapacityWanted.as_view(), name="capacity-wanted"),
    path("capacity/changes/", FleetChangeList.as_view(), name="capacity-changes"),
]
