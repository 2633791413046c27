"""Every GPU of the cluster with its holder, status and idle time, as all pages draw it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, F, FilteredRelation, OuterRef, Q, QuerySet, Sum
from django.utils import timezone

from core.keyset import KeysetPage, Order, keyset_page
from core.live import current_seqs
from core.roles import Asking, is_cluster_admin
from core.templatetags.tidepool import lasting, size
from core.time import iso
from jobs.models import Job, SlotClaim
from jobs.queries.gpu_status import trains
from jobs.words import ANOTHER_USERS_TRAINING
from workers.models import Host, Slot
from workers.queries import slots
from workers.topics import CLUSTER

__all__ = [
    "HOSTS_ON_PAGE",
    "IDLE_AFTER_SECONDS",
    "STATUSES",
    "PoolTotals",
    "cluster_live",
    "counts_of",
    "hosts_with_slots",
    "page_of_hosts",
    "pool_totals",
    "present_hosts",
    "slot_status",
    "slots_of_hosts",
    "slots_of_job",
    "some_slots",
]

#: Number of hosts on a page. A browser draws some hundred GPUs at once without delay.
HOSTS_ON_PAGE = 60

#: Seconds without work after which a held GPU counts as idle. Loading data and writing checkpoints takes less.
IDLE_AFTER_SECONDS = 60.0
#: Status of a GPU -> its words on pages. GPUs of the first four are held; those of the first two train.
STATUSES = {
    "busy": "training",
    "idle": "idle",
    "vacating": "starting or releasing",
    "silent": "held on a host that does not report",
    "free": "free",
    "draining": "draining, not offered",
    "offline": "offline",
}
_SILENT = frozenset({Host.State.OFFLINE, Host.State.LOST})
#: Columns of a claim and of a slot that a tile needs; some others take long to read.
_OF_CLAIM = (
    *("slot_id", "job_id", "claimed_at", "trains_from", "trained_until", "vacating_at"),
    *("job__name", "job__owner_id", "job__owner__username", "job__run__stepped_at"),
)
_OF_SLOT = (
    *("index", "device_model", "virtual", "sick_since"),
    *(f"host__{name}" for name in ("name", "state", "ngpus", "virtual")),
    *(f"reading__{name}" for name in ("at", "idle_since", "utilisation_percent", "memory_used_bytes")),
    "reading__memory_total_bytes",
)


def slot_status(host_state: str, *, held: bool, training: bool, idle_seconds: float | None) -> str:
    """Return the status of a GPU. On a silent host it stays held, and nobody knows whether its process trains."""
    if held:
        if host_state in _SILENT:
            return "silent"
        if not training:
            return "vacating"
        return "idle" if idle_seconds is not None and idle_seconds >= IDLE_AFTER_SECONDS else "busy"
    if host_state in _SILENT:
        return "offline"
    return "draining" if host_state == Host.State.DRAINING else "free"


def cluster_live(user: Asking) -> dict[str, Any]:
    """Return all GPUs host by host, and the number of each status, for the pages and REST."""
    seq = current_seqs([CLUSTER])[CLUSTER]
    hosts = [host for host in _host_slots(user, SlotClaim.objects.open(), slots()) if host["slots"]]
    counts = counts_of(slot["status"] for host in hosts for slot in host["slots"])
    return {"seq": seq, "state": {}, "append": {}, "hosts": hosts, "counts": counts}


def counts_of(statuses: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Return the number of held GPUs, of held GPUs that train, and of GPUs in each status."""
    found = Counter(statuses)
    training = found["busy"] + found["idle"]
    held = training + found["vacating"] + found["silent"]
    return {"held": held, "training": training} | {status: found[status] for status in STATUSES}


@dataclass(frozen=True)
class PoolTotals:
    """Sums over all GPUs of the pool, on whichever page their hosts are."""

    counts: Mapping[str, int]
    #: Number of GPUs of the hosts that are not offline.
    present: int
    #: Mean utilization, in percent, of the held GPUs that report it.
    utilisation_percent: float | None
    #: Ids of the slots that are held and idle, the longest first.
    idle: Sequence[int]


def pool_totals() -> PoolTotals:
    """Return the sums. The database counts alike GPUs; times are read only of those that may be idle."""
    now, statuses = timezone.now(), Counter[str]()
    present = measured = 0
    utilisation = 0.0
    pool = _with_holders(slots().filter(index__lt=F("host__ngpus")))
    kinds = pool.values_list("host__state", "is_sick", "is_held", "is_training").order_by().annotate(
        Count("pk"), Count("reading__utilisation_percent"), Sum("reading__utilisation_percent")
    )  # fmt: skip
    for state, is_sick, is_held, is_training, count, readings, percent in kinds:
        shown = Host.State.DRAINING if is_sick else state
        statuses[slot_status(shown, held=is_held, training=is_training, idle_seconds=None)] += count
        present += count if state != Host.State.OFFLINE else 0
        if is_held and readings:
            measured, utilisation = measured + readings, utilisation + percent
    idle = sorted(_idle(pool, now))
    # A GPU may have begun to idle between the two queries.
    moved = min(len(idle), statuses["busy"])
    statuses["busy"] -= moved
    statuses["idle"] += moved
    mean = utilisation / measured if measured else None
    return PoolTotals(counts_of(statuses), present, mean, [pk for _, pk in idle])


def _with_holders(rows: QuerySet[Slot]) -> QuerySet[Any]:
    """Return slots with their open claim as `holder`, and what a status depends on."""
    claim = FilteredRelation("claims", condition=Q(claims__released_at=None))
    training = Q(holder__trains_from__isnull=False, holder__trained_until=None)
    return rows.select_related(None).annotate(holder=claim).annotate(
        is_sick=Q(sick_since__isnull=False), is_held=Q(holder__isnull=False), is_training=training
    )  # fmt: skip


def _idle(pool: QuerySet[Any], now: datetime) -> Iterator[tuple[datetime, int]]:
    """Yield the time since which a GPU is held and idle, and the id of its slot."""
    times = ("reading__idle_since", "reading__at", "holder__claimed_at", "holder__job__run__stepped_at")
    heard = Q(is_sick=True) | ~Q(host__state__in=_SILENT)
    able = pool.filter(heard, is_training=True, reading__idle_since__isnull=False)
    for pk, idle_since, read_at, claimed_at, stepped_at in able.order_by().values_list("pk", *times):
        holder = _Holder(claimed_at, True, stepped_at)
        since = _idle_since((idle_since, read_at), holder)
        if since is not None and (min(now, read_at) - since).total_seconds() >= IDLE_AFTER_SECONDS:
            yield since, pk


def hosts_with_slots() -> QuerySet[Host]:
    present = Slot.objects.filter(host=OuterRef("pk"), index__lt=OuterRef("ngpus"))
    return Host.objects.filter(Exists(present), removed_at=None)


def present_hosts() -> QuerySet[Host]:
    """Return the hosts with GPUs without those that are offline and hold nothing."""
    held = SlotClaim.objects.open().filter(slot__host=OuterRef("pk"))
    return hosts_with_slots().filter(~Q(state=Host.State.OFFLINE) | Exists(held))


def page_of_hosts(hosts: QuerySet[Host], given: Mapping[str, str], size: int = HOSTS_ON_PAGE) -> KeysetPage[Host]:
    """Return the hosts, by name, of the page that an address selects."""
    return keyset_page(hosts, Order("name"), given, size)


def slots_of_job(user: Asking, job: Job) -> list[dict[str, Any]]:
    """Return the slots that a job holds."""
    claims = SlotClaim.objects.open().filter(job=job)
    held = slots().filter(pk__in=claims.values("slot"))
    return [slot for host in _host_slots(user, claims, held) for slot in host["slots"]]


def slots_of_hosts(user: Asking, hosts: Iterable[Host]) -> list[dict[str, Any]]:
    """Return each slot of the hosts with its holder, host by host. Other users' jobs have an id and nothing else."""
    return some_slots(user, slots().filter(host__in=hosts))


def some_slots(user: Asking, rows: QuerySet[Slot]) -> list[dict[str, Any]]:
    """Return some slots as `slots_of_hosts` does."""
    return _host_slots(user, SlotClaim.objects.open().filter(slot__in=rows.values("pk")), rows)


def _host_slots(user: Asking, open_claims: QuerySet[SlotClaim], rows: QuerySet[Slot]) -> list[dict[str, Any]]:
    now = timezone.now()
    claims = {claim.slot_id: claim for claim in open_claims.order_by().values_list(*_OF_CLAIM, named=True)}
    hosts: dict[str, dict[str, Any]] = {}
    for slot in rows.only(*_OF_SLOT).order_by("host__name", "index"):
        host = slot.host
        entry = hosts.setdefault(
            host.name, {"host": host.name, "state": str(host.state), "virtual": host.virtual, "slots": []}
        )
        if slot.index < host.ngpus:
            found = _slot(slot, claims.get(slot.pk), user, now)
            entry["slots"].append(found | _words(found))
    return list(hosts.values())


@dataclass(frozen=True)
class _Holder:
    """The claim of a slot, as far as its status depends on it."""

    claimed_at: datetime
    training: bool
    #: Time of the job's newest step.
    stepped_at: datetime | None


def _status(
    host_state: str,
    sick_since: datetime | None,
    reading: Sequence[datetime | None],
    holder: _Holder | None,
    now: datetime,
) -> tuple[str, datetime | None]:
    """Return the status of a GPU, and the time since which its holder leaves it idle.

    reading: time since which the GPU is idle, and time of the newest reading.
    """
    read_at, idle_since, idle_seconds = reading[1], _idle_since(reading, holder), None
    if read_at and idle_since:
        # Up to the newest reading: nobody knows what the GPU does while reports wait.
        idle_seconds = (min(now, read_at) - idle_since).total_seconds()
    # A sick GPU is offered to nobody, and its training moves off, as on a draining host.
    state = host_state if sick_since is None else Host.State.DRAINING
    training = holder is not None and holder.training
    return slot_status(state, held=holder is not None, training=training, idle_seconds=idle_seconds), idle_since


def _idle_since(reading: Sequence[datetime | None], holder: _Holder | None) -> datetime | None:
    """Return the time since which a holder leaves its GPU idle."""
    since, read_at = reading
    if not (since and read_at and holder):
        return None
    # Only from the claim on: the holder did not cause what came before. Steps of a small model may not show in the
    # utilization.
    return max(since, holder.claimed_at, holder.stepped_at or holder.claimed_at)


def _slot(slot: Slot, claim: Any, user: Asking, now: datetime) -> dict[str, Any]:
    """Return what a tile says. claim: the row of `_OF_CLAIM` that holds the slot; None: it is free."""
    reading = getattr(slot, "reading", None)
    visible = claim is not None and (is_cluster_admin(user) or claim.job__owner_id == user.pk)
    holder = None
    if claim is not None:
        training = trains(claim.trains_from, claim.trained_until)
        holder = _Holder(claim.claimed_at, training, claim.job__run__stepped_at)
    times = (reading.idle_since, reading.at) if reading else (None, None)
    status, idle_since = _status(slot.host.state, slot.sick_since, times, holder, now)
    return {
        "key": str(slot),
        "host": slot.host.name,
        "index": slot.index,
        "model": slot.device_model,
        "virtual": slot.virtual,
        "status": status,
        "job": claim.job_id if claim else None,
        "label": None if claim is None else claim.job__name if visible else ANOTHER_USERS_TRAINING,
        "owner": claim.job__owner__username if claim and visible else None,
        "visible": visible,
        "training": holder is not None and holder.training,
        "vacating": claim is not None and claim.vacating_at is not None,
        "begins": claim is not None and claim.trains_from is None,
        "stale": slot.host.state in _SILENT,
        "held_since": iso(claim.claimed_at) if claim else None,
        "idle_since": iso(idle_since),
        "utilisation_percent": reading.utilisation_percent if reading else None,
        "memory_used_bytes": reading.memory_used_bytes if reading else None,
        "memory_total_bytes": reading.memory_total_bytes if reading else None,
    }


def _words(slot: dict[str, Any]) -> dict[str, Any]:
    """Return the texts of a tile: name, note below it, second note for wide tiles, and tooltip."""
    busy = slot["utilisation_percent"]
    name = STATUSES[slot["status"]] if slot["job"] is None else slot["label"]
    note, more = _note(slot), ""
    if slot["job"] is None:
        more = slot["model"]
    elif slot["memory_used_bytes"] is not None:
        used, total = slot["memory_used_bytes"], slot["memory_total_bytes"]
        more = f"{size(used)} of {size(total)}" if total else size(used)
    more = " · ".join(filter(None, [slot["owner"], more]))
    stale = "no recent report from the host" if slot["stale"] else ""
    title = ", ".join(filter(None, [f"{slot['key']}: {name}", note, slot["model"], more, stale]))
    return {"name": name, "busy": None if busy is None else round(busy), "note": note, "more": more, "title": title}


def _note(slot: dict[str, Any]) -> str:
    if slot["job"] is None:
        return ""
    if not slot["training"] or slot["vacating"]:
        return "starting" if slot["begins"] and not slot["vacating"] else "releasing"
    if slot["status"] == "idle":
        return f"idle for {lasting(slot['idle_since'])}"
    busy = slot["utilisation_percent"]
    return "" if busy is None else f"{busy:.0f} % busy"
