"""`/conf` and `/status`: whether the service answers, and what it can do."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import SlotClaim
from wmla.frameworks import FRAMEWORKS
from wmla.view import WmlaView, route
from workers.models import Host
from workers.queries import slots

__all__ = ["urls"]


class ConfOutput(serializers.Serializer[Any]):
    MSD_ENABLED = serializers.BooleanField(help_text="Cloud Pak's scheduler and its addresses are there.")
    DLI_DATA_FS = serializers.CharField(help_text="What `data_path` is relative to.")
    DLI_RESULT_FS = serializers.CharField()
    FRAMEWORKS = serializers.ListField(child=serializers.CharField())


class StatusOutput(serializers.Serializer[Any]):
    status = serializers.ChoiceField(["RUNNING"])
    hosts = serializers.IntegerField(help_text="Those that are online.")
    gpus = serializers.IntegerField(help_text="Of these hosts.")
    gpusInUse = serializers.IntegerField()


class Conf(WmlaView):
    @extend_schema(responses=ConfOutput)
    def get(self, request: Request) -> Response:
        """Return the configuration of the service."""
        return Response(
            {
                "MSD_ENABLED": True,
                "DLI_DATA_FS": str(settings.TIDEPOOL_DATA_ROOTS[0]),
                "DLI_RESULT_FS": str(settings.TIDEPOOL_RESULTS_ROOT),
                "FRAMEWORKS": [framework.name for framework in FRAMEWORKS],
            }
        )


class Status(WmlaView):
    @extend_schema(responses=StatusOutput)
    def get(self, request: Request) -> Response:
        """Return the state of the service and what it offers now."""
        online = Host.objects.filter(state=Host.State.ONLINE)
        return Response(
            {
                "status": "RUNNING",
                "hosts": online.count(),
                "gpus": slots().filter(host__in=online).count(),
                "gpusInUse": SlotClaim.objects.filter(released_at=None).count(),
            }
        )


urls: list[URLPattern] = [route("conf", Conf, "conf"), route("status", Status, "status")]
