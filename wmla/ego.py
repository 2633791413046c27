"""Resource groups, consumers and hosts under EGO's base URL. These URLs are Tidepool's own; the log-on is EGO's.

They are read-only; use `/api/v1/` for changes.
"""

from typing import Any

from django.contrib.auth.models import User
from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import existing
from core.rest import signed_in
from core.time import iso
from jobs.queries.groups import visible_groups
from wmla.answer_fields import Json, Many, Text, Texts, Whole
from wmla.base_view import ConductorView, route
from wmla.scheduler import PlanOutput, plans
from workers.group_rules import offer_of
from workers.models import Host, ResourceGroup
from workers.queries import find_resource_group, held_indexes, hosts, resource_groups

__all__ = ["urls"]

_MEBIBYTE = 1024**2
_Selection = ResourceGroup.Selection


class EgoMemberOutput(serializers.Serializer[Any]):
    name = Text(source="host.name")
    state = Text(source="host.state")
    type = Text(
        lambda row: "virtual" if row["host"].virtual else "physical",
        help_text="physical, or virtual: its GPUs are simulated on CPUs.",
    )
    ncpus = Whole(source="host.ncpus")
    ngpus = Whole(source="host.ngpus")
    maxmem = Whole(lambda row: row["host"].memory_bytes // _MEBIBYTE, help_text="MiB.")
    maxswp = Whole(
        lambda row: None if (swap := row["host"].swap_bytes) is None else swap // _MEBIBYTE,
        allow_null=True,
        help_text="MiB; null here and in the following fields: not reported.",
    )
    nprocs = Whole(source="host.nprocs", allow_null=True)
    ncores = Whole(source="host.ncores", allow_null=True)
    nthreads = Whole(source="host.nthreads", allow_null=True)
    lastreport = Text(lambda row: iso(row["host"].last_report_at), allow_null=True)
    totalslots = Whole(
        source="total", help_text="Slots that it offers to the resource group; in the list of hosts, its GPUs."
    )
    freeslots = Whole(source="free", allow_null=True, help_text="Null for CPU slots, which are not allocated.")


class EgoHostOutput(EgoMemberOutput):
    gpus = Many(
        lambda row: [_gpu(slot) for slot in row["slots"]], child=Json(), help_text="Newest reading of each GPU."
    )


class EgoGroupOutput(serializers.Serializer[Any]):
    name = Text(source="group.name")
    description = Text(source="group.description")
    type = Text(
        lambda row: "Static (List of Names)" if row["group"].selection == _Selection.STATIC else "Dynamic",
        help_text="Dynamic or Static (List of Names).",
    )
    slots = Text(source="group.slot_rule", help_text="Expression for the number of slots of each host.")
    requirement = Text(source="group.requirement", help_text="Condition of a dynamic group; empty: every host.")
    kind = Text(source="group.kind", help_text="gpu, or service: CPU slots, which are shown but not allocated.")
    hosts = Whole(lambda row: len(row["offered"]))
    totalslots = Whole(lambda row: sum(row["offered"].values()))
    instancegroups = Texts(help_text="Instance groups on it that you may use.")


class EgoGroupDetailOutput(EgoGroupOutput):
    members = EgoMemberOutput(many=True)


class ResourceGroups(ConductorView):
    @extend_schema(responses=EgoGroupOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all resource groups, with the slots that their hosts offer now."""
        every_host, used_by = list(Host.objects.filter(removed_at=None)), _used_by(signed_in(request))
        rows = [
            {
                "group": group,
                "offered": offer_of(group).slots(every_host),
                "instancegroups": used_by.get(group.pk, []),
            }
            for group in resource_groups().order_by("name")
        ]
        return Response(EgoGroupOutput(rows, many=True).data)


class ResourceGroupDetail(ConductorView):
    @extend_schema(responses=EgoGroupDetailOutput)
    def get(self, request: Request, resource_group: str) -> Response:
        """Return a resource group with its member hosts."""
        group: ResourceGroup = existing(find_resource_group(resource_group), "resource group")
        every_host, held = list(Host.objects.filter(removed_at=None).order_by("name")), held_indexes()
        offered = offer_of(group).slots(every_host)
        row = {
            "group": group,
            "offered": offered,
            "instancegroups": _used_by(signed_in(request)).get(group.pk, []),
            "members": [_member(host, offered[host.name], group, held) for host in every_host if host.name in offered],
        }
        return Response(EgoGroupDetailOutput(row).data)


class Consumers(ConductorView):
    @extend_schema(responses=PlanOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the instance groups that the user may use, with their shares of the GPUs."""
        return Response(plans(list(visible_groups(signed_in(request)))))


class Hosts(ConductorView):
    @extend_schema(responses=EgoHostOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all hosts, with the newest readings of their GPUs."""
        held = held_indexes()
        rows = []
        for host in hosts().order_by("name"):
            there = [slot for slot in host.slots.all() if slot.index < host.ngpus]
            free = sum(slot.index not in held.get(host.pk, ()) for slot in there)
            rows.append({"host": host, "total": len(there), "free": free, "slots": there})
        return Response(EgoHostOutput(rows, many=True).data)


def _used_by(user: User) -> dict[int, list[str]]:
    """Return resource group -> the instance groups on it that the user may see."""
    names: dict[int, list[str]] = {}
    for group in visible_groups(user):
        names.setdefault(group.resource_group_id, []).append(group.name)
    return names


def _member(host: Host, slots: int, group: ResourceGroup, held: dict[int, set[int]]) -> dict[str, Any]:
    """Return a member host. It offers its GPUs with the lowest indexes; CPU slots are not allocated."""
    is_gpu = group.kind == ResourceGroup.Kind.GPU
    free = slots - sum(index < slots for index in held.get(host.pk, ())) if is_gpu else None
    return {"host": host, "total": slots, "free": free}


def _gpu(slot: Any) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    used = reading.memory_used_bytes if reading else None
    return {
        "index": slot.index,
        "model": slot.device_model,
        "gpudevutil": reading.utilisation_percent if reading else None,
        "gpumemused": None if used is None else round(used / _MEBIBYTE),
    }


urls: list[URLPattern] = [
    route("resourcegroups", ResourceGroups, "ego-resource-groups"),
    route("resourcegroups/<resource_group>", ResourceGroupDetail, "ego-resource-group"),
    route("consumers", Consumers, "ego-consumers"),
    route("hosts", Hosts, "ego-hosts"),
]
