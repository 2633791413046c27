"""Queries of hosts, slots and resource groups; nothing here writes."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery

from core.text import by_reference
from scheduling.snapshot import Share
from workers.clocks import correction_seconds
from workers.group_rules import offer_of
from workers.models import CapacityPoint, Host, ResourceGroup, Slot

__all__ = [
    "HostOffer",
    "capacity",
    "capacity_since",
    "clock_corrections",
    "device_models",
    "find_host",
    "find_removed_host",
    "find_resource_group",
    "gpu_models",
    "held_indexes",
    "held_slots",
    "host_offers",
    "host_sizes",
    "hosts",
    "largest_host",
    "listed_hosts",
    "register_further_hosts",
    "resource_groups",
    "slots",
]


#: Functions that return the sizes of hosts that may come to a resource group, registered by apps that import this one.
_further_hosts: list[Callable[[ResourceGroup], list[int]]] = []


def register_further_hosts(find: Callable[[ResourceGroup], list[int]]) -> None:
    """Count hosts that may come as capacity: a training may ask for them. Register from `AppConfig.ready`."""
    _further_hosts.append(find)


def hosts() -> QuerySet[Host]:
    """Return the hosts that are not removed, with their slots and newest readings."""
    return _with_slots(Host.objects.filter(removed_at=None))


def _with_slots(rows: QuerySet[Host]) -> QuerySet[Host]:
    return rows.prefetch_related(Prefetch("slots", Slot.objects.select_related("reading")))


def held_slots(host: Host) -> int:
    """Return the number of the host's GPUs that trainings hold or have not left yet."""
    return host.slots.filter(claims__isnull=False, claims__released_at=None).distinct().count()


def clock_corrections(names: Iterable[str]) -> dict[str, float]:
    """Return, by name of host, the seconds to add to times of its clock to compare them with another's."""
    rows = Host.objects.filter(name__in=set(names)).values_list("name", "clock_behind_seconds")
    return {name: correction_seconds(behind) for name, behind in rows}


def find_host(reference: int | str) -> Host | None:
    return by_reference(hosts(), reference)


def listed_hosts(group: ResourceGroup | None = None) -> list[Host]:
    """Return the hosts that a group can have, by name: those that are not removed, and those that it lists already."""
    known = Q(removed_at=None) if group is None else Q(removed_at=None) | Q(static_groups=group)
    return list(Host.objects.filter(known).distinct().order_by("name"))


def held_indexes() -> dict[int, set[int]]:
    """Return, by id of host, the indexes of its slots that trainings hold or have not left yet."""
    held: dict[int, set[int]] = defaultdict(set)
    rows = Slot.objects.filter(claims__isnull=False, claims__released_at=None).order_by()
    for host, index in rows.values_list("host", "index"):
        held[host].add(index)
    return held


def device_models() -> dict[int, str]:
    """Return, by id of host, the models of its GPUs."""
    models: dict[int, list[str]] = defaultdict(list)
    for host, model in Slot.objects.order_by("host", "device_model").values_list("host", "device_model").distinct():
        models[host].append(model or "unknown")
    return {host: ", ".join(names) for host, names in models.items()}


def gpu_models(group: ResourceGroup) -> set[str]:
    """Return the models of the GPUs of its hosts, present or not."""
    offered = offer_of(group).slots(Host.objects.all())
    models = Slot.objects.filter(host__name__in=offered, host__removed_at=None).order_by()
    return set(models.values_list("device_model", flat=True))


def find_removed_host(reference: int | str) -> Host | None:
    return by_reference(_with_slots(Host.objects.exclude(removed_at=None)), reference)


def slots() -> QuerySet[Slot]:
    return Slot.objects.filter(host__removed_at=None).select_related("host", "reading")


def resource_groups() -> QuerySet[ResourceGroup]:
    return ResourceGroup.objects.prefetch_related("hosts")


def find_resource_group(reference: int | str) -> ResourceGroup | None:
    return by_reference(resource_groups(), reference)


def capacity_since(start: datetime, end: datetime | None = None) -> QuerySet[CapacityPoint]:
    """Return the changes of capacity from `start` until `end`, and each host's last one before `start`, by time."""
    before = CapacityPoint.objects.filter(host=OuterRef("pk"), at__lt=start).order_by("-at", "-id")
    last = Host.objects.annotate(last=Subquery(before.values("pk")[:1])).values("last")
    points = CapacityPoint.objects.filter(Q(at__gte=start) | Q(pk__in=last))
    return (points.filter(at__lt=end) if end else points).order_by("at", "id")


def capacity(group: ResourceGroup) -> int:
    """Return the number of slots of the group, free or not, with those of hosts that may come."""
    return sum(_offered(group))


def largest_host(group: ResourceGroup) -> int:
    """Return the highest number of slots that a host of the group offers."""
    return max(_offered(group), default=0)


def host_sizes(group: ResourceGroup) -> list[int]:
    """Return the numbers of slots that hosts of the group offer."""
    return _offered(group)


@dataclass(frozen=True)
class HostOffer:
    """Slots that a host offers to a resource group."""

    name: str
    slots: int
    #: Cores and memory of each; None: unknown.
    share: Share | None


def host_offers(group: ResourceGroup) -> list[HostOffer]:
    """Return the offers of the group's hosts, and of those that may come, whose shares are unknown."""
    hosts = {host.name: host for host in Host.objects.all()}
    sizes = offer_of(group).slots(hosts.values())
    there = [HostOffer(name, size, hosts[name].share) for name, size in sizes.items() if size]
    return [*there, *(HostOffer("", size, None) for find in _further_hosts for size in find(group))]


def _offered(group: ResourceGroup) -> list[int]:
    """Return the numbers of slots of its hosts, and of those that may come."""
    there = offer_of(group).slots(Host.objects.all()).values()
    return [*there, *(size for find in _further_hosts for size in find(group))]
