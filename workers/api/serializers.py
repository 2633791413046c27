"""Shapes of hosts, slots and resource groups in the API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.rest import StrictSerializer
from workers.actions import ResourceGroupSpec
from workers.models import GpuReading, Host, ResourceGroup, Slot

__all__ = ["HostOutput", "ResourceGroupChange", "ResourceGroupInput", "ResourceGroupOutput", "SlotOutput"]


class ReadingOutput(serializers.ModelSerializer[GpuReading]):
    class Meta:
        model = GpuReading
        fields = [
            "at",
            "utilisation_percent",
            "memory_used_bytes",
            "memory_total_bytes",
            "temperature_celsius",
            "power_watts",
        ]


class SlotOutput(serializers.ModelSerializer[Slot]):
    host = serializers.CharField(source="host.name")
    reading = ReadingOutput(default=None, allow_null=True, read_only=True)

    class Meta:
        model = Slot
        fields = ["id", "host", "index", "device_model", "device_uuid", "virtual", "reading"]


class HostOutput(serializers.ModelSerializer[Host]):
    slots = serializers.SerializerMethodField(help_text="Indexes of its slots.")

    class Meta:
        model = Host
        fields = [
            "id",
            "name",
            "state",
            "address",
            "ncpus",
            "ngpus",
            "memory_bytes",
            "swap_bytes",
            "nprocs",
            "ncores",
            "nthreads",
            "virtual",
            "last_report_at",
            "slots",
        ]

    @extend_schema_field({"type": "array", "items": {"type": "integer"}})
    def get_slots(self, host: Any) -> list[int]:
        return [slot.index for slot in host.slots.all()]


class _ResourceGroupRule(StrictSerializer):
    slot_rule = serializers.CharField(max_length=1000, default="ngpus", help_text="Such as `ngpus` or `ncpus*2`.")
    selection = serializers.ChoiceField(ResourceGroup.Selection.choices, default=ResourceGroup.Selection.DYNAMIC)
    description = serializers.CharField(max_length=200, default="", allow_blank=True)
    requirement = serializers.CharField(
        max_length=1000, default="", allow_blank=True, help_text="Dynamic only, such as `ngpus > 0`; empty: every host."
    )
    hosts = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, max_length=10_000, help_text="Names; static only."
    )


class ResourceGroupInput(_ResourceGroupRule):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    kind = serializers.ChoiceField(ResourceGroup.Kind.choices, default=ResourceGroup.Kind.GPU)

    def spec(self) -> ResourceGroupSpec:
        return ResourceGroupSpec(**self.validated_data)


class ResourceGroupChange(_ResourceGroupRule):
    """All that can be changed; what is left out stays."""


class ResourceGroupOutput(serializers.ModelSerializer[ResourceGroup]):
    hosts: serializers.ManyRelatedField = serializers.SlugRelatedField(  # type: ignore[assignment]
        "name", many=True, read_only=True
    )

    class Meta:
        model = ResourceGroup
        fields = ["id", "name", "description", "kind", "slot_rule", "selection", "requirement", "hosts", "created_at"]
