"""Reads hosts, slots and resource groups; nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Prefetch, QuerySet

from webapp.lib.references import by_reference
from webapp.lib.time import iso
from workers.models import Host, ResourceGroup, Slot
from workers.slot_formula import Attributes, FormulaError, parse

__all__ = [
    "attributes",
    "capacity",
    "find_host",
    "find_resource_group",
    "hosts",
    "hosts_live",
    "offered_slots",
    "resource_groups",
    "slots",
    "slots_of_host",
]


def hosts() -> QuerySet[Host]:
    """All hosts with their slots and the newest readings."""
    return Host.objects.prefetch_related(Prefetch("slots", Slot.objects.select_related("reading")))


def hosts_live() -> dict[str, Any]:
    """What the page of the hosts fetches again and again."""
    return {
        host.name: {"state": str(host.state), "last_report_at": iso(host.last_report_at), "slots": _readings(host)}
        for host in hosts()
    }


def _readings(host: Host) -> dict[str, Any]:
    shown = ("utilisation_percent", "memory_used_bytes", "memory_total_bytes")
    readings = {slot.index: getattr(slot, "reading", None) for slot in host.slots.all()}
    return {str(index): {name: getattr(reading, name, None) for name in shown} for index, reading in readings.items()}


def find_host(reference: int | str) -> Host | None:
    return by_reference(hosts(), reference)


def slots() -> QuerySet[Slot]:
    return Slot.objects.select_related("host", "reading")


def resource_groups() -> QuerySet[ResourceGroup]:
    return ResourceGroup.objects.prefetch_related("hosts")


def find_resource_group(reference: int | str) -> ResourceGroup | None:
    return by_reference(resource_groups(), reference)


def offered_slots(group: ResourceGroup, every_host: Iterable[Host]) -> dict[str, int]:
    """Host name -> how many slots it offers to the group: for GPU slots, those with the lowest indexes.

    Hosts that have left count nothing. A rule that cannot be computed for a host gives none of its slots.
    """
    if group.selection == ResourceGroup.Selection.DYNAMIC:
        members = list(every_host)
    else:
        listed = {host.pk for host in group.hosts.all()}
        members = [host for host in every_host if host.pk in listed]
    return {host.name: slots_of_host(group, host) for host in members if host.state != Host.State.OFFLINE}


def slots_of_host(group: ResourceGroup, host: Host) -> int:
    try:
        offered = parse(group.slot_rule).slots(attributes(host))
    except FormulaError:
        return 0
    return min(offered, host.ngpus) if group.kind == ResourceGroup.Kind.GPU else offered


def attributes(host: Host) -> Attributes:
    return Attributes(ncpus=host.ncpus, ngpus=host.ngpus, maxmem=host.memory_bytes // 1024**2)


def capacity(group: ResourceGroup) -> int:
    """Slots that the group has in all, free or not."""
    return sum(offered_slots(group, Host.objects.all()).values())
