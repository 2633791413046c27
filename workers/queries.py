"""Reads hosts, slots and resource groups; nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery

from webapp.lib.live import HOSTS, current_seqs
from webapp.lib.references import by_reference
from webapp.lib.time import iso
from workers.models import CapacityPoint, Host, ResourceGroup, Slot
from workers.slot_formula import Attributes, FormulaError, parse

__all__ = [
    "attributes",
    "capacity",
    "capacity_since",
    "find_host",
    "find_resource_group",
    "hosts",
    "hosts_live",
    "hosts_now",
    "offered_slots",
    "resource_groups",
    "slots",
    "slots_of_host",
]


def hosts() -> QuerySet[Host]:
    """All hosts with their slots and the newest readings."""
    return Host.objects.prefetch_related(Prefetch("slots", Slot.objects.select_related("reading")))


def hosts_live() -> dict[str, Any]:
    """All hosts as their page shows and fetches them."""
    seq = current_seqs([HOSTS])[HOSTS]
    return {"seq": seq, "state": {host.name: _host_as_json(host) for host in hosts()}, "append": {}}


def hosts_now(names: Iterable[str]) -> dict[str, Any]:
    """Some of them, as a live event tells of them."""
    return {host.name: _host_as_json(host) for host in hosts().filter(name__in=list(names))}


def _host_as_json(host: Host) -> dict[str, Any]:
    facts = ("address", "ncpus", "memory_bytes", "ngpus", "virtual")
    return {
        "state": str(host.state),
        "last_report_at": iso(host.last_report_at),
        **{name: getattr(host, name) for name in facts},
        "slots": {str(slot.index): _slot_as_json(slot) for slot in host.slots.all()},
    }


def _slot_as_json(slot: Slot) -> dict[str, Any]:
    shown = ("utilisation_percent", "memory_used_bytes", "memory_total_bytes", "temperature_celsius", "power_watts")
    reading = getattr(slot, "reading", None)
    return {"device_model": slot.device_model, **{name: getattr(reading, name, None) for name in shown}}


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


def capacity_since(start: datetime) -> list[CapacityPoint]:
    """Every change of what the pool has of a host since then, and of each host the last one before; by time."""
    before = CapacityPoint.objects.filter(host=OuterRef("pk"), at__lt=start).order_by("-at", "-id")
    last = Host.objects.annotate(last=Subquery(before.values("pk")[:1])).values("last")
    return list(CapacityPoint.objects.filter(Q(at__gte=start) | Q(pk__in=last)).order_by("at", "id"))


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
