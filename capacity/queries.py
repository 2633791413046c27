"""What capacity is wanted, and where fleets stand."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.conf import settings

from capacity.fleets import Fleet, FleetsError, read_fleets
from capacity.models import FleetChange, FleetState
from capacity.scaling import Situation, limit_of_fleet, wanted_words
from jobs.control.snapshots import snapshot
from scheduling.capacity import HostShape, cheapest_to_leave, wanted_hosts, with_hosts
from scheduling.snapshot import Snapshot
from workers.models import CapacityPoint, Host, ResourceGroup

__all__ = [
    "WantedCapacity",
    "fleet_hosts",
    "shape_of",
    "situation",
    "sizes_to_come",
    "spent_this_month",
    "wanted_capacity",
]

#: Number of hosts that are tried where no fleet says how many there may be.
_MOST_HOSTS = 16
#: Slots of a further host where there is none to go by.
_USUAL_SLOTS = 8
#: Value per GPU from which a further host pays, where no fleet says another one.
_WORTH = 0.5
#: Number of hosts whose leaving is tried in a turn.
_MOST_CANDIDATES = 30


@dataclass(frozen=True)
class WantedCapacity:
    """Capacity that a resource group could use now, in hosts like those that it has of a kind."""

    resource_group: str
    kind: Annotated[str, "GPU model; empty: unknown."]
    slots_per_host: int
    offered: Annotated[int, "GPUs of this kind that it offers."]
    free: Annotated[int, "Of these, GPUs that no training holds."]
    waiting_trainings: Annotated[int, "Waiting trainings that further hosts would start, within their quotas."]
    waiting_slots: Annotated[int, "GPUs that these would take now."]
    paying_slots: Annotated[int, "Further GPUs that would pay: each adds more than half the speed of a GPU alone."]
    hosts: Annotated[int, "Hosts that bring both."]
    why: Annotated[str, "A sentence."]


def wanted_capacity(now: datetime) -> list[WantedCapacity]:
    """Return the wanted capacity of each GPU resource group, by the kinds of GPU that it has."""
    seen = snapshot(now, measures=True)
    names = ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).order_by("name").values_list("name", flat=True)
    return [_wanted_of(seen, name, kind, slots) for name in names for kind, slots in _kinds(seen, name)]


def _kinds(seen: Snapshot, resource_group: str) -> list[tuple[str, int]]:
    """Return the kinds of GPU of a resource group, and the usual number of slots of a host of each."""
    sizes = Counter((slot.device, slot.ref.host) for slot in seen.slots if resource_group in slot.resource_groups)
    kinds: dict[str, Counter[int]] = {}
    for (kind, _), count in sizes.items():
        kinds.setdefault(kind, Counter())[count] += 1
    usual = {kind: max(counts, key=lambda size: (counts[size], size)) for kind, counts in kinds.items()}
    return sorted(usual.items()) or [("", _USUAL_SLOTS)]


def _wanted_of(seen: Snapshot, resource_group: str, kind: str, slots: int) -> WantedCapacity:
    found = wanted_hosts(seen, HostShape((resource_group,), kind, slots), _MOST_HOSTS, _WORTH)
    here = [slot for slot in seen.slots if slot.device == kind and resource_group in slot.resource_groups]
    offered = [slot for slot in here if slot.claimable]
    words = wanted_words(found)
    if not words and found.unhelped:
        words = "further hosts would start none of the waiting trainings: their quotas, groups or limits keep them"
    return WantedCapacity(
        resource_group=resource_group,
        kind=kind,
        slots_per_host=slots,
        offered=len(offered),
        free=sum(slot.held_by is None for slot in offered),
        waiting_trainings=len(found.waiting),
        waiting_slots=found.waiting_slots,
        paying_slots=found.paying_slots,
        hosts=found.hosts,
        why=f"{words[:1].upper()}{words[1:]}." if words else "No further GPU is wanted.",
    )


# --- fleets -----------------------------------------------------------------------------------------------------------


def sizes_to_come(group: ResourceGroup) -> list[int]:
    """Return the numbers of slots of the hosts that fleets may still bring to a resource group."""
    if settings.TIDEPOOL_FLEETS_FILE is None:
        return []
    try:
        fleets = read_fleets(settings.TIDEPOOL_FLEETS_FILE)
    except FleetsError:  # the page says so
        return []
    sizes = []
    for fleet in fleets:
        if group.name in fleet.resource_groups:
            there = Host.objects.filter(fleet=fleet.name, removed_at=None).exclude(state=Host.State.OFFLINE).count()
            sizes += [fleet.slots] * max(0, fleet.most - there)
    return sizes


def shape_of(fleet: Fleet) -> HostShape:
    return HostShape(fleet.resource_groups, fleet.kind, fleet.slots)


def fleet_hosts(name: str) -> list[Host]:
    return list(Host.objects.filter(fleet=name, removed_at=None).order_by("name"))


def situation(fleet: Fleet, seen: Snapshot, changes: Sequence[FleetChange], now: datetime) -> Situation:
    """Return the fleet's situation. `changes`: its open ones. `seen`: the cluster, with what earlier fleets bring."""
    hosts = tuple(host.name for host in fleet_hosts(fleet.name) if host.state == Host.State.ONLINE)
    starts = [change for change in changes if change.action == FleetChange.Action.START]
    coming = sum(change.count - len(change.hosts) for change in starts)
    state = FleetState.objects.filter(name=fleet.name).first()
    newest = FleetChange.objects.filter(fleet=fleet.name).values_list("at", flat=True).first()
    spent = spent_this_month(fleet, now)
    with_coming = with_hosts(seen, shape_of(fleet), coming)
    room = max(0, limit_of_fleet(fleet, spent)[0] - len(hosts) - coming)
    wanted = wanted_hosts(with_coming, shape_of(fleet), room, fleet.worth)
    # A fleet that wants hosts stops none.
    is_over = len(hosts) + coming > limit_of_fleet(fleet, spent)[0]
    candidates = _candidates(seen, hosts) if is_over or not wanted.hosts else []
    return Situation(
        at=now.timestamp(),
        hosts=hosts,
        coming=coming,
        draining=_draining(changes),
        is_calling=any(change.state == FleetChange.State.CALLING for change in changes),
        spent_month=spent,
        changed_at=newest.timestamp() if newest else None,
        surplus_since=state.surplus_since.timestamp() if state and state.surplus_since else None,
        retry_at=state.retry_at.timestamp() if state and state.retry_at else None,
        failure=state.failure if state else "",
        wanted=wanted,
        leaving=tuple(cheapest_to_leave(with_coming, candidates)),
    )


def _draining(changes: Iterable[FleetChange]) -> tuple[str, ...]:
    """Return the hosts that drain because they are to be stopped, and could stay: no notice says that they go."""
    names = [host for change in changes if change.state == FleetChange.State.DRAINING for host in change.hosts]
    going = set(
        Host.objects.filter(name__in=names, drains_for_notice_since__isnull=False).values_list("name", flat=True)
    )
    return tuple(name for name in names if name not in going)


def _candidates(seen: Snapshot, hosts: Iterable[str]) -> list[str]:
    """Return those of the hosts that may leave: the ones of which trainings hold the fewest GPUs."""
    held = Counter(slot.ref.host for slot in seen.slots if slot.claimable and slot.held_by is not None)
    offering = {slot.ref.host for slot in seen.slots if slot.claimable}
    return sorted(offering.intersection(hosts), key=lambda host: (held[host], host))[:_MOST_CANDIDATES]


def spent_this_month(fleet: Fleet, now: datetime) -> float:
    """Return the price of the fleet's hosts since the beginning of the month (UTC)."""
    if not fleet.price:
        return 0.0
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    points = CapacityPoint.objects.filter(host__fleet=fleet.name).order_by("host", "at", "id")
    return fleet.price * _hours(points.values_list("host", "at", "slots"), start, now)


def _hours(points: Iterable[tuple[int, datetime, int]], start: datetime, end: datetime) -> float:
    """Return the hours between `start` and `end` in which hosts offered slots. Points are in order of host and time."""
    rows, seconds = list(points), 0.0
    for (host, at, slots), after in zip(rows, [*rows[1:], None], strict=True):
        until = after[1] if after is not None and after[0] == host else end
        if slots:
            seconds += max(0.0, (min(until, end) - max(at, start)).total_seconds())
    return seconds / 3600
