"""Metrics of jobs, slots, hosts and the scheduler at this moment, by a constant number of database queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import redis
from django.db.models import Count, F, Min, Q
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from core.broker import connect
from jobs.control.snapshots import snapshot
from jobs.models import InstanceGroup, Job, SchedulerLease, SlotClaim
from jobs.states import JobState
from scheduling.fair_share import fair_share
from workers.models import GpuReading, Host

__all__ = ["ClusterCollector"]

_READINGS = {
    "utilisation_percent": "How busy the device is.",
    "memory_used_bytes": "Memory in use on the device.",
    "memory_total_bytes": "Memory of the device.",
    "temperature_celsius": "Temperature of the device.",
    "power_watts": "Power that the device draws.",
}


_SHARES = {
    "deserved": "A group's part now, by quota, weight and what it asks for.",
    "borrowed": "Slots that a group holds beyond its part.",
    "lent": "Slots of a group's part that others hold.",
}
#: Values of the labels, and the number.
_Sample = tuple[list[str], float]


class ClusterCollector(Collector):
    def collect(self) -> Iterator[Metric]:
        now = timezone.now()
        groups = {group.pk: group for group in InstanceGroup.objects.all()}
        yield from _jobs(now, groups)
        yield from _allocation(groups)
        yield from _shares(now)
        yield from _hosts(now)
        yield from _devices()
        yield from _scheduler(now)
        yield from _broker()


def _gauge(name: str, words: str, labels: Iterable[str], samples: Iterable[_Sample]) -> Metric:
    family = GaugeMetricFamily(f"tidepool_{name}", words, labels=list(labels))
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _jobs(now: datetime, groups: dict[int, InstanceGroup]) -> Iterator[Metric]:
    rows = list(
        Job.objects.order_by()
        .values("instance_group_id", "state")
        .annotate(number=Count("pk"), oldest=Min("submitted_at"))
        .values_list("instance_group_id", "state", "number", "oldest")
    )
    found = {(group, state): number for group, state, number, _ in rows}
    every = [(pk, state) for pk in groups for state in JobState]
    samples = [([groups[pk].name, str(state)], float(found.get((pk, state), 0))) for pk, state in every]
    yield _gauge("jobs", "Trainings by state.", ["instance_group", "state"], samples)
    oldest = {group: at for group, state, _, at in rows if state == JobState.PENDING}
    waiting = [
        ([group.name], (now - oldest[pk]).total_seconds() if pk in oldest else 0.0) for pk, group in groups.items()
    ]
    yield _gauge("oldest_waiting_job_seconds", "Age of the oldest training that waits.", ["instance_group"], waiting)


def _allocation(groups: dict[int, InstanceGroup]) -> Iterator[Metric]:
    open_claims = SlotClaim.objects.order_by().filter(released_at__isnull=True)
    held = dict(open_claims.values_list("job__instance_group").annotate(number=Count("pk")))
    samples = [([group.name], float(held.get(pk, 0))) for pk, group in groups.items()]
    yield _gauge("group_slots_held", "Slots that the trainings of a group hold.", ["instance_group"], samples)
    quotas = [([group.name], float(group.quota)) for group in groups.values() if group.quota is not None]
    yield _gauge("group_slots_quota", "Slots that a group owns, where it has a quota.", ["instance_group"], quotas)


def _shares(now: datetime) -> Iterator[Metric]:
    """By the scheduler's own functions, as the page "Fair share" has it."""
    shares = [share for pool in fair_share(snapshot(now)).sharing_pools for share in pool.groups]
    for name, words in _SHARES.items():
        samples = [([share.group.name], float(getattr(share, name))) for share in shares]
        yield _gauge(f"group_slots_{name}", words, ["instance_group"], samples)


def _hosts(now: datetime) -> Iterator[Metric]:
    present = Q(slots__index__lt=F("ngpus"))
    hosts = list(Host.objects.filter(removed_at__isnull=True).annotate(offered=Count("slots", filter=present)))
    counts = defaultdict(int, {str(state): 0 for state in Host.State})
    for host in hosts:
        counts[str(host.state)] += 1
    yield _gauge("hosts", "Hosts by state.", ["state"], (([state], float(n)) for state, n in counts.items()))
    ages = [
        ([host.name], (now - host.last_report_at).total_seconds())
        for host in hosts
        if host.last_report_at is not None and host.state != Host.State.OFFLINE
    ]
    yield _gauge("host_report_age_seconds", "Time since the host's last report.", ["host"], ages)
    yield _gauge("slots", "Slots by host and state.", ["host", "state"], _slots(hosts))


def _slots(hosts: Sequence[Host]) -> Iterator[_Sample]:
    """free, held, vacating (being given back), or away: those of a host that offers none now."""
    open_claims = SlotClaim.objects.order_by().filter(released_at__isnull=True)
    vacating = Count("pk", filter=Q(vacating_at__isnull=False))
    taken = {
        host: (number, leaving)
        for host, number, leaving in open_claims.values("slot__host_id")
        .annotate(number=Count("pk"), leaving=vacating)
        .values_list("slot__host_id", "number", "leaving")
    }
    for host in hosts:
        number, leaving = taken.get(host.pk, (0, 0))
        rest = max(0, host.offered - number)  # type: ignore[attr-defined]  # annotated
        offers = host.state == Host.State.ONLINE
        states = {"held": number - leaving, "vacating": leaving, "free": rest * offers, "away": rest * (not offers)}
        yield from (([host.name, state], float(slots)) for state, slots in states.items())


def _devices() -> Iterator[Metric]:
    readings = GpuReading.objects.filter(slot__host__removed_at__isnull=True).exclude(slot__host__state="OFFLINE")
    columns = ("slot__host__name", "slot__index", "slot__device_model", *_READINGS)
    rows = list(readings.order_by("slot__host__name", "slot__index").values_list(*columns))
    for place, (name, words) in enumerate(_READINGS.items(), start=3):
        samples = [([row[0], str(row[1]), row[2]], float(row[place])) for row in rows if row[place] is not None]
        yield _gauge(f"gpu_{name}", words, ["host", "slot", "model"], samples)


def _scheduler(now: datetime) -> Iterator[Metric]:
    lease = SchedulerLease.objects.first() or SchedulerLease()
    left = (lease.expires_at - now).total_seconds() if lease.expires_at else 0.0
    holder = [([lease.holder], left)] if lease.holder else []
    yield _gauge("scheduler_lease_seconds", "Who leads, and for how long without a word.", ["holder"], holder)
    yield _gauge("scheduler_epoch", "Raised by each scheduler that takes the lead.", [], [([], float(lease.epoch))])
    age: list[_Sample] = [([], (now - lease.decided_at).total_seconds())] if lease.decided_at else []
    yield _gauge("scheduler_decision_age_seconds", "Time since the newest plan was carried out.", [], age)
    yield SummaryMetricFamily(
        "tidepool_scheduler_cycle_seconds",
        "Cycles of the scheduler, and the time that they took.",
        count_value=lease.cycles,
        sum_value=lease.cycles_seconds,
    )


def _broker() -> Iterator[Metric]:
    """Broker health, by asking it for the length of a queue. A broker that is down is a metric, not an error."""
    waiting: list[Any] = []
    with suppress(redis.RedisError, OSError):
        waiting.append(connect().llen("control"))
    yield _gauge("broker_up", "Whether the broker answers.", [], [([], float(len(waiting)))])
    reports: Iterator[_Sample] = (([], float(number)) for number in waiting)
    yield _gauge("reports_waiting", "Reports of hosts that the control worker has not taken yet.", [], reports)
