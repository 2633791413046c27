"""`/metrics` for Prometheus, with a token of its own and for administrators: it names hosts and groups.

Values from the database are read on each request; those of this web process are counted as they occur.
"""

import hmac
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import prometheus_client
import redis
from django.conf import settings
from django.core.cache.backends.locmem import LocMemCache
from django.db.models import Count, F, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from accounts.authentication import BearerToken
from capacity.models import FleetState
from capacity.queries import wanted_capacity
from core.broker import connect
from core.roles import Role, role_of
from core.scopes import job_of
from jobs.control.snapshots import snapshot
from jobs.models import AllocationPoint, InstanceGroup, Job, JobEvent, SchedulerLease, SlotClaim, UnstoredEntry
from jobs.states import JobState
from scheduling.sharing_report import fair_share
from tracking.availability import mlflow_away_since
from workers.lateness import reports_delay
from workers.models import GpuReading, Host, Intake

__all__ = ["REGISTRY", "WEBSOCKETS", "CountRequests", "History", "metrics"]

REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=REGISTRY)

# --- this web process -------------------------------------------------------------------------------------------------

WEBSOCKETS = prometheus_client.Gauge(
    "tidepool_websockets", "Browsers that follow live events at this web process.", registry=REGISTRY
)
_REQUESTS = prometheus_client.Histogram(
    "tidepool_http_request_seconds",
    "Time until the answer began, by route.",
    ["route", "method", "status"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    registry=REGISTRY,
)
#: HTTP methods with a series of their own; clients could invent any number of others.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class CountRequests:
    """Counts and times requests. It is the first middleware, so its time includes all others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = time.perf_counter()
        response = self.get_response(request)
        method = request.method if request.method in _METHODS else "other"
        _REQUESTS.labels(_route(request), method, response.status_code).observe(time.perf_counter() - begun)
        return response


def _route(request: HttpRequest) -> str:
    """Return the route's pattern, not the URL, because each job would create a series."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return settings.STATIC_URL if request.path.startswith(settings.STATIC_URL) else "none"


# --- rows that are only ever added ------------------------------------------------------------------------------------

#: Number of newest rows that are read again: a row with a lower id may be committed later.
_LOOK_BACK = 1000


@dataclass
class _NewRows:
    """Reads each row once, in any order of commits."""

    rows: QuerySet[Any]
    newest: int | None = None
    taken: set[int] = field(default_factory=set)

    def take(self) -> list[Any]:
        if self.newest is None:
            self.newest = self.rows.model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0
            self.taken = set(range(self.newest - _LOOK_BACK, self.newest + 1))
            return []
        fresh = [row for row in self.rows.filter(pk__gt=self.newest - _LOOK_BACK) if row.pk not in self.taken]
        self.newest = max([self.newest, *(row.pk for row in fresh)])
        self.taken = {pk for pk in self.taken | {row.pk for row in fresh} if pk > self.newest - _LOOK_BACK}
        return fresh


class History:
    """Histograms that each scrape extends with new rows. Every web process counts separately, from its start."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._starts = _NewRows(_starts())
        self._switches = _NewRows(AllocationPoint.objects.filter(pause_ms__isnull=False).order_by("pk"))
        self._waits = prometheus_client.Histogram(
            "tidepool_queue_wait_seconds",
            "Seconds that trainings waited for GPUs, for each start.",
            ["instance_group"],
            buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
            registry=registry,
        )
        self._pauses = prometheus_client.Histogram(
            "tidepool_resize_pause_seconds",
            "How long trainings stood still while their GPUs changed.",
            buckets=(0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 15.0),
            registry=registry,
        )
        self._resizes = prometheus_client.Counter(
            "tidepool_resizes", "Live changes of the GPUs of trainings, by reason.", ["reason"], registry=registry
        )

    def look(self) -> None:
        with self._lock:
            for start in self._starts.take():
                if start.queued_at is not None:
                    waited = (start.at - start.queued_at).total_seconds()
                    self._waits.labels(start.job.instance_group.name).observe(max(0.0, waited))
            for point in self._switches.take():
                self._pauses.observe(point.pause_ms / 1000)
                self._resizes.labels(point.reason_code).inc()


def _starts() -> QuerySet[Any]:
    queued = JobEvent.objects.filter(job=OuterRef("job"), seq__lt=OuterRef("seq"), new=JobState.PENDING)
    entered = queued.exclude(old=JobState.PENDING).order_by("-seq").values("at")[:1]
    starts = JobEvent.objects.filter(old=JobState.PENDING, new=JobState.STARTING).order_by("pk")
    return starts.select_related("job__instance_group").annotate(queued_at=Subquery(entered))


# --- the cluster now --------------------------------------------------------------------------------------------------

_READINGS = {
    "utilisation_percent": "How busy the device is.",
    "memory_used_bytes": "Memory in use on the device.",
    "memory_total_bytes": "Memory of the device.",
    "temperature_celsius": "Temperature of the device.",
    "power_watts": "Power that the device draws.",
}
_SHARES = {
    "deserved": "Present entitlement of a group in GPUs, by quota, weight and demand.",
    "borrowed": "Slots that a group holds beyond its part.",
    "lent": "Slots of a group's part that others hold.",
}
#: Values of the labels, and the number.
_Sample = tuple[list[str], float]


class ClusterCollector(Collector):
    """Metrics of jobs, slots, hosts and the scheduler, by a constant number of database queries."""

    def collect(self) -> Iterator[Metric]:
        now = timezone.now()
        groups = {group.pk: group for group in InstanceGroup.objects.all()}
        yield from _jobs(now, groups)
        yield from _allocation(groups)
        yield from _shares(now)
        yield from _hosts(now)
        yield from _capacity(now)
        yield from _devices()
        yield from _scheduler(now)
        yield from _broker()
        yield from _delay(now)
        yield from _not_stored(now)


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
    samples = [([groups[pk].name, str(state)], found.get((pk, state), 0)) for pk, state in every]
    yield _gauge("jobs", "Trainings by state.", ["instance_group", "state"], samples)
    oldest = {group: at for group, state, _, at in rows if state == JobState.PENDING}
    waiting = [
        ([group.name], (now - oldest[pk]).total_seconds() if pk in oldest else 0.0) for pk, group in groups.items()
    ]
    yield _gauge("oldest_waiting_job_seconds", "Age of the oldest training that waits.", ["instance_group"], waiting)


def _allocation(groups: dict[int, InstanceGroup]) -> Iterator[Metric]:
    open_claims = SlotClaim.objects.open().order_by()
    held = dict(open_claims.values_list("job__instance_group").annotate(number=Count("pk")))
    samples = [([group.name], held.get(pk, 0)) for pk, group in groups.items()]
    yield _gauge("group_slots_held", "Slots that the trainings of a group hold.", ["instance_group"], samples)
    quotas = [([group.name], group.quota) for group in groups.values() if group.quota is not None]
    yield _gauge("group_slots_quota", "Slots that a group owns, where it has a quota.", ["instance_group"], quotas)


#: Newest wanted capacity. It takes tens of plans on trial, which are seconds of work where there are thousands of GPUs.
_wanted = LocMemCache("wanted-capacity", {"timeout": 60.0})


def _capacity(now: datetime) -> Iterator[Metric]:
    samples = [
        ([row.resource_group, row.kind, why], slots)
        for row in _wanted.get_or_set("rows", lambda: wanted_capacity(now)) or ()
        for why, slots in (("waiting", row.waiting_slots), ("paying", row.paying_slots))
    ]
    words = "Slots that waiting trainings would take now within their quotas, and further ones that would pay."
    yield _gauge("slots_wanted", words, ["resource_group", "kind", "why"], samples)
    fleets = [
        ([fleet.name, state], count)
        for fleet in FleetState.objects.all()
        for state, count in (("in_service", fleet.hosts), ("coming", fleet.coming), ("wanted", fleet.wanted))
    ]
    yield _gauge("fleet_hosts", "Hosts of a fleet of the autoscaler.", ["fleet", "state"], fleets)


def _shares(now: datetime) -> Iterator[Metric]:
    """Shares by the scheduler's own functions, as on the page "Fair share"."""
    shares = [share for pool in fair_share(snapshot(now)).sharing_pools for share in pool.groups]
    for name, words in _SHARES.items():
        samples = [([share.group.name], getattr(share, name)) for share in shares]
        yield _gauge(f"group_slots_{name}", words, ["instance_group"], samples)


def _hosts(now: datetime) -> Iterator[Metric]:
    present = Q(slots__index__lt=F("ngpus"))
    hosts = list(Host.objects.filter(removed_at__isnull=True).annotate(offered=Count("slots", filter=present)))
    counts = Counter(host.state for host in hosts)
    yield _gauge("hosts", "Hosts by state.", ["state"], (([state], counts[state]) for state in Host.State))
    ages = [
        ([host.name], (now - host.last_report_at).total_seconds())
        for host in hosts
        if host.last_report_at is not None and host.state != Host.State.OFFLINE
    ]
    yield _gauge("host_report_age_seconds", "Time since the host's last report.", ["host"], ages)
    clocks = [([host.name], host.clock_behind_seconds) for host in hosts if host.clock_behind_seconds is not None]
    yield _gauge("host_clock_behind_seconds", "How far the host's clock is behind; negative: ahead.", ["host"], clocks)
    yield _gauge("slots", "Slots by host and state.", ["host", "state"], _slots(hosts))


def _slots(hosts: Sequence[Host]) -> Iterator[_Sample]:
    """Count slots by state: free, held, vacating, or away (on a host that offers none now)."""
    open_claims = SlotClaim.objects.open().order_by()
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
        yield from (([host.name, state], slots) for state, slots in states.items())


def _devices() -> Iterator[Metric]:
    readings = GpuReading.objects.filter(slot__host__removed_at__isnull=True).exclude(slot__host__state="OFFLINE")
    columns = ("slot__host__name", "slot__index", "slot__device_model", *_READINGS)
    rows = list(readings.order_by("slot__host__name", "slot__index").values_list(*columns))
    for place, (name, words) in enumerate(_READINGS.items(), start=3):
        samples = [([row[0], str(row[1]), row[2]], row[place]) for row in rows if row[place] is not None]
        yield _gauge(f"gpu_{name}", words, ["host", "slot", "model"], samples)


def _scheduler(now: datetime) -> Iterator[Metric]:
    lease = SchedulerLease.objects.first() or SchedulerLease()
    left = (lease.expires_at - now).total_seconds() if lease.expires_at else 0.0
    holder = [([lease.holder], left)] if lease.holder else []
    yield _gauge("scheduler_lease_seconds", "Who leads, and for how long without a word.", ["holder"], holder)
    yield _gauge("scheduler_epoch", "Raised by each scheduler that takes the lead.", [], [([], lease.epoch)])
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
    yield _gauge("broker_up", "Whether the broker answers.", [], [([], len(waiting))])
    reports: Iterator[_Sample] = (([], number) for number in waiting)
    yield _gauge("reports_waiting", "Reports of hosts that the control worker has not taken yet.", [], reports)


def _delay(now: datetime) -> Iterator[Metric]:
    delay = reports_delay(now)
    known: list[_Sample] = [] if delay is None else [([], delay.total_seconds())]
    words = "How far the control plane is behind with the reports of hosts; about 1 while it keeps up."
    yield _gauge("reports_delay_seconds", words, [], known)
    dropped, forged = Intake.objects.filter(pk=1).values_list("dropped", "forged").first() or (0, 0)
    yield _gauge("reports_dropped", "Messages of hosts that could not be read, ever.", [], [([], dropped)])
    words = "Reports that were not signed by their host, or had come before, ever."
    yield _gauge("reports_forged", words, [], [([], forged)])


def _not_stored(now: datetime) -> Iterator[Metric]:
    set_aside = UnstoredEntry.objects.exclude(set_aside_at=None).aggregate(rows=Count("pk"), more=Sum("more"))
    number = set_aside["rows"] + (set_aside["more"] or 0)
    words = "Entries of hosts' reports that could not be stored and were set aside, ever."
    yield _gauge("report_entries_set_aside", words, [], [([], number)])
    away = mlflow_away_since(now)
    if settings.TIDEPOOL_MLFLOW_SOCKET:
        seconds = (now - away).total_seconds() if away else 0.0
        yield _gauge("mlflow_away_seconds", "For how long MLflow has not answered.", [], [([], seconds)])


# --- the page ---------------------------------------------------------------------------------------------------------

_history = History(REGISTRY)
REGISTRY.register(ClusterCollector())


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    if not _may_read(request):
        sentence = "Send the metrics token, or an administrator's: Authorization: Bearer <token>.\n"
        return HttpResponse(sentence, status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"})
    _history.look()
    text = prometheus_client.generate_latest(REGISTRY)
    return HttpResponse(text, content_type=prometheus_client.CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    own = settings.TIDEPOOL_METRICS_TOKEN
    if own and hmac.compare_digest(given, f"Bearer {own}".encode()):
        return True
    try:
        found = BearerToken().authenticate(Request(request))
    except APIException:
        return False
    if found is not None and job_of(found[1].scope) is not None:
        return False
    return role_of(found[0] if found else request.user) == Role.CLUSTER_ADMIN
