"""Resource groups, consumers and hosts under EGO's base. IBM does not publish these addresses: they are our own.

They are for reading; `/api/v1/` changes what they show.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import ObjectField, found, signed_in
from core.time import iso
from jobs.queries.groups import visible_groups
from wmla.resource_plans import plan_tree
from wmla.scheduler_views import PlanOutput
from wmla.view import ConductorView
from workers.models import Host, ResourceGroup
from workers.offers import offer_of
from workers.queries import find_resource_group, held_indexes, hosts, resource_groups

__all__ = ["Consumers", "Hosts", "ResourceGroupDetail", "ResourceGroups"]

_MEBIBYTE = 1024**2


class EgoMemberOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.CharField()
    type = serializers.CharField(help_text="virtual: its GPUs are processes of its CPUs.")
    ncpus = serializers.IntegerField()
    ngpus = serializers.IntegerField()
    maxmem = serializers.IntegerField(help_text="MiB.")
    maxswp = serializers.IntegerField(allow_null=True, help_text="MiB; null here and below: it does not tell.")
    nprocs = serializers.IntegerField(allow_null=True)
    ncores = serializers.IntegerField(allow_null=True)
    nthreads = serializers.IntegerField(allow_null=True)
    lastreport = serializers.CharField(allow_null=True)
    totalslots = serializers.IntegerField(help_text="Of a resource group: what it offers to that one. Else its GPUs.")
    freeslots = serializers.IntegerField(allow_null=True, help_text="Null for slots that nothing here hands out.")


class EgoHostOutput(EgoMemberOutput):
    gpus = serializers.ListField(child=ObjectField(), help_text="The newest reading of each GPU.")


class EgoGroupOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    type = serializers.CharField(help_text="Dynamic or Static (List of Names).")
    slots = serializers.CharField(help_text="The expression for the slots of each host.")
    requirement = serializers.CharField(help_text="Of a dynamic one; empty: every host.")
    kind = serializers.CharField(help_text="gpu, or service: slots of processors, which are shown and not handed out.")
    hosts = serializers.IntegerField()
    totalslots = serializers.IntegerField()
    instancegroups = serializers.ListField(child=serializers.CharField(), help_text="Those that one may use.")


class EgoGroupDetailOutput(EgoGroupOutput):
    members = EgoMemberOutput(many=True)


class ResourceGroups(ConductorView):
    @extend_schema(responses=EgoGroupOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all resource groups, with what their hosts offer now."""
        every_host, used_by = list(Host.objects.filter(removed_at=None)), _used_by(signed_in(request))
        groups = resource_groups().order_by("name")
        return Response(
            [_group(group, offer_of(group).slots(every_host), used_by.get(group.pk, [])) for group in groups]
        )


class ResourceGroupDetail(ConductorView):
    @extend_schema(responses=EgoGroupDetailOutput)
    def get(self, request: Request, resource_group: str) -> Response:
        """Return a resource group with its member hosts."""
        group: ResourceGroup = found(find_resource_group(resource_group), "resource group")
        every_host, held = list(Host.objects.filter(removed_at=None).order_by("name")), held_indexes()
        offered = offer_of(group).slots(every_host)
        members = [_member(host, offered[host.name], group, held) for host in every_host if host.name in offered]
        used_by = _used_by(signed_in(request)).get(group.pk, [])
        return Response({**_group(group, offered, used_by), "members": members})


class Consumers(ConductorView):
    @extend_schema(responses=PlanOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the instance groups that the user may use, with their part of the GPUs."""
        return Response(plan_tree(signed_in(request))["childTreeDto"])


class Hosts(ConductorView):
    @extend_schema(responses=EgoHostOutput(many=True))
    def get(self, request: Request) -> Response:
        """List all hosts, with the newest readings of their GPUs."""
        held = held_indexes()
        return Response([_host(host, held) for host in hosts().order_by("name")])


def _group(group: ResourceGroup, offered: dict[str, int], used_by: list[str]) -> dict[str, Any]:
    """Return a resource group. offered: name of each member -> its slots."""
    is_static = group.selection == ResourceGroup.Selection.STATIC
    return {
        "name": group.name,
        "description": group.description,
        "type": "Static (List of Names)" if is_static else "Dynamic",
        "slots": group.slot_rule,
        "requirement": group.requirement,
        "kind": group.kind,
        "hosts": len(offered),
        "totalslots": sum(offered.values()),
        "instancegroups": used_by,
    }


def _used_by(user: User) -> dict[int, list[str]]:
    """Return resource group -> the instance groups on it that the user may see."""
    names: dict[int, list[str]] = {}
    for group in visible_groups(user):
        names.setdefault(group.resource_group_id, []).append(group.name)
    return names


def _member(host: Host, slots: int, group: ResourceGroup, held: dict[int, set[int]]) -> dict[str, Any]:
    """Return a member host. Its GPUs with the lowest indexes are offered; nobody hands out slots of processors."""
    is_gpu = group.kind == ResourceGroup.Kind.GPU
    free = slots - sum(index < slots for index in held.get(host.pk, ())) if is_gpu else None
    return {**_facts(host), "totalslots": slots, "freeslots": free}


def _host(host: Host, held: dict[int, set[int]]) -> dict[str, Any]:
    there = [slot for slot in host.slots.all() if slot.index < host.ngpus]
    free = sum(slot.index not in held.get(host.pk, ()) for slot in there)
    return {**_facts(host), "totalslots": len(there), "freeslots": free, "gpus": [_gpu(slot) for slot in there]}


def _facts(host: Host) -> dict[str, Any]:
    return {
        "name": host.name,
        "state": host.state,
        "type": "virtual" if host.virtual else "physical",
        "ncpus": host.ncpus,
        "ngpus": host.ngpus,
        "maxmem": host.memory_bytes // _MEBIBYTE,
        "maxswp": None if host.swap_bytes is None else host.swap_bytes // _MEBIBYTE,
        "nprocs": host.nprocs,
        "ncores": host.ncores,
        "nthreads": host.nthreads,
        "lastreport": iso(host.last_report_at),
    }


def _gpu(slot: Any) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    used = reading.memory_used_bytes if reading else None
    return {
        "index": slot.index,
        "model": slot.device_model,
        "gpudevutil": reading.utilisation_percent if reading else None,
        "gpumemused": None if used is None else round(used / _MEBIBYTE),
    }
