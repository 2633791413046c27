"""Past rules of instance groups, and past pools, as input of a replay.

Past rules are reconstructed by reverting the audit entries one by one, from the current rules. The past capacity of
each host is stored; the assignment to resource groups is assumed to be the current one.
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
    """Return all groups at `start`, and each change since."""
    groups = {str(group.pk): group for group in InstanceGroup.objects.select_related("resource_group").order_by("name")}
    pools = {pool.name: pool for pool in ResourceGroup.objects.all()}
    changes: list[Change] = []
    entries = AuditEntry.objects.filter(kind="instance group", key__in=groups, at__gte=start)
    for entry in entries.order_by("-at", "-id"):
        changes.append((entry.at.timestamp(), Rules(_views(groups))))
        _revert(groups[entry.key], entry.before, pools)
    return _views(groups), changes[::-1]


def _views(groups: Mapping[str, InstanceGroup]) -> tuple[GroupView, ...]:
    return tuple(map(group_view, groups.values()))


def _revert(group: InstanceGroup, before: Mapping[str, Any], pools: Mapping[str, ResourceGroup]) -> None:
    """Set the columns to their values before a change, without saving the row."""
    for column, value in before.items():
        if column in _COLUMNS:
            setattr(group, column, value)
        elif column == "resource_group" and value in pools:
            group.resource_group = pools[value]


def past_pool(start: datetime) -> tuple[tuple[SlotView, ...], list[Change]]:
    """Return all slots at `start`, and the slots after each change since."""
    hosts = {host.pk: host for host in Host.objects.all()}
    offered = offers(hosts.values(), {}, were_there=True)
    slots: dict[int, list[SlotView]] = defaultdict(list)
    for host_id, index, device in Slot.objects.order_by("index").values_list("host", "index", "device_model"):
        name = hosts[host_id].name
        groups = tuple(group for group, count in offered[name] if index < count)
        if groups:
            slots[host_id].append(SlotView(SlotRef(name, index), groups, True, device=device))
    capacity: dict[int, int] = {}
    first: tuple[SlotView, ...] | None = None
    changes: list[Change] = []
    for point in capacity_since(start):
        if point.at >= start and first is None:
            first = _pool(slots, capacity)
        capacity[point.host_id] = point.slots
        if point.at >= start:
            changes.append((point.at.timestamp(), Pool(_pool(slots, capacity))))
    return _pool(slots, capacity) if first is None else first, changes


def _pool(slots: Mapping[int, list[SlotView]], capacity: Mapping[int, int]) -> tuple[SlotView, ...]:
    present = (slot for host, own in slots.items() for slot in own if slot.ref.index < capacity.get(host, 0))
    return tuple(sorted(present, key=lambda slot: slot.ref))
