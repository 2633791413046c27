"""The rules of instance groups and the pool as they were: input of a replay.

Rules are taken back from what holds now, one entry of the audit after the other. What the pool had of each host is
stored; which of it each resource group offers is taken as it is now.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from core.models import AuditEntry
from jobs.control.snapshots import group_view, offers
from jobs.models import InstanceGroup
from jobs.queries.group_terms import LINKS, TERMS
from scheduling.replay.world import Change, Pool, Rules
from scheduling.snapshot import GroupView, SlotRef, SlotView
from workers.models import Host, ResourceGroup, Slot
from workers.queries import capacity_since

__all__ = ["past_pool", "past_rules"]

_COLUMNS = {term.column for term in TERMS} - {"resource_group", *LINKS} | {"state"}


def past_rules(start: datetime) -> tuple[tuple[GroupView, ...], list[Change]]:
    """All groups at `start`, and each change since."""
    groups = {str(group.pk): group for group in InstanceGroup.objects.select_related("resource_group").order_by("name")}
    pools = {pool.name: pool for pool in ResourceGroup.objects.all()}
    changes: list[Change] = []
    entries = AuditEntry.objects.filter(kind="instance group", key__in=groups, at__gte=start)
    for entry in entries.order_by("-at", "-id"):
        changes.append((entry.at.timestamp(), Rules(_views(groups))))
        _take_back(groups[entry.key], entry.before, pools)
    return _views(groups), changes[::-1]


def _views(groups: Mapping[str, InstanceGroup]) -> tuple[GroupView, ...]:
    return tuple(map(group_view, groups.values()))


def _take_back(group: InstanceGroup, before: Mapping[str, Any], pools: Mapping[str, ResourceGroup]) -> None:
    """The row in memory alone."""
    for column, value in before.items():
        if column in _COLUMNS:
            setattr(group, column, value)
        elif column == "resource_group" and value in pools:
            group.resource_group = pools[value]


def past_pool(start: datetime) -> tuple[tuple[SlotView, ...], list[Change]]:
    """All slots at `start`, and after each change since."""
    hosts = {host.pk: host for host in Host.objects.all()}
    offered = offers(hosts.values(), {}, were_there=True)
    slots: dict[int, list[SlotView]] = defaultdict(list)
    for host_id, index, device in Slot.objects.order_by("index").values_list("host", "index", "device_model"):
        name = hosts[host_id].name
        groups = tuple(group for group, count in offered[name] if index < count)
        if groups:
            slots[host_id].append(SlotView(SlotRef(name, index), groups, True, device=device))
    has: dict[int, int] = {}
    first: tuple[SlotView, ...] | None = None
    changes: list[Change] = []
    for point in capacity_since(start):
        if point.at >= start and first is None:
            first = _pool(slots, has)
        has[point.host_id] = point.slots
        if point.at >= start:
            changes.append((point.at.timestamp(), Pool(_pool(slots, has))))
    return _pool(slots, has) if first is None else first, changes


def _pool(slots: Mapping[int, list[SlotView]], has: Mapping[int, int]) -> tuple[SlotView, ...]:
    there = (slot for host, own in slots.items() for slot in own if slot.ref.index < has.get(host, 0))
    return tuple(sorted(there, key=lambda slot: slot.ref))
