"""Every GPU of the cluster with its holder, status and idle time, as all pages draw it."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

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
    "IDLE_AFTER_SECONDS",
    "STATUSES",
    "cluster_live",
    "counts_of",
    "host_slots",
    "mean_utilisation",
    "slot_status",
    "slots_of_job",
]


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
    hosts = [host for host in host_slots(user) if host["slots"]]
    return {"seq": seq, "state": {}, "append": {}, "hosts": hosts, "counts": counts_of(hosts)}


def counts_of(hosts: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the number of held GPUs, of held GPUs that train, and of GPUs in each status."""
    found = Counter(slot["status"] for host in hosts for slot in host["slots"])
    training = found["busy"] + found["idle"]
    held = training + found["vacating"] + found["silent"]
    return {"held": held, "training": training} | {status: found[status] for status in STATUSES}


def mean_utilisation(hosts: Iterable[dict[str, Any]]) -> float | None:
    """Return the mean utilization, in percent, of the held GPUs that report it."""
    held = [slot["utilisation_percent"] for host in hosts for slot in host["slots"] if slot["job"] is not None]
    reported = [percent for percent in held if percent is not None]
    return sum(reported) / len(reported) if reported else None


def slots_of_job(user: Asking, job: Job) -> list[dict[str, Any]]:
    """Return the slots that a job holds."""
    claims = SlotClaim.objects.open().filter(job=job)
    held = slots().filter(pk__in=claims.values("slot"))
    return [slot for host in _host_slots(user, claims, held) for slot in host["slots"]]


def host_slots(user: Asking) -> list[dict[str, Any]]:
    """Return each slot with its holder, host by host. Other users' jobs have an id and nothing else."""
    return _host_slots(user, SlotClaim.objects.open(), slots())


def _host_slots(user: Asking, open_claims: QuerySet[SlotClaim], rows: QuerySet[Slot]) -> list[dict[str, Any]]:
    now = timezone.now()
    claims = {claim.slot_id: claim for claim in open_claims.order_by().select_related("job__owner", "job__run")}
    hosts: dict[str, dict[str, Any]] = {}
    for slot in rows.order_by("host__name", "index"):
        host = slot.host
        entry = hosts.setdefault(
            host.name, {"host": host.name, "state": str(host.state), "virtual": host.virtual, "slots": []}
        )
        if slot.index < host.ngpus:
            found = _slot(slot, claims.get(slot.pk), user, now)
            entry["slots"].append(found | _words(found))
    return list(hosts.values())


def _slot(slot: Slot, claim: SlotClaim | None, user: Asking, now: datetime) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    # A sick GPU is offered to nobody, and its training moves off, as on a draining host.
    state = slot.host.state if slot.sick_since is None else Host.State.DRAINING
    visible = claim is not None and (is_cluster_admin(user) or claim.job.owner_id == user.pk)
    training = claim is not None and trains(claim)
    idle_since = idle_seconds = None
    if reading and reading.idle_since and claim:
        # Count idle time only from the claim on: the holder did not cause what came before. Steps of a small model
        # may not show in the utilization.
        stepped_at = claim.job.run.stepped_at or claim.claimed_at
        idle_since = max(reading.idle_since, claim.claimed_at, stepped_at)
        # Up to the newest reading: nobody knows what the GPU does while reports wait.
        idle_seconds = (min(now, reading.at) - idle_since).total_seconds()
    return {
        "key": str(slot),
        "host": slot.host.name,
        "index": slot.index,
        "model": slot.device_model,
        "virtual": slot.virtual,
        "status": slot_status(state, held=claim is not None, training=training, idle_seconds=idle_seconds),
        "job": claim.job_id if claim else None,
        "label": None if claim is None else claim.job.name if visible else ANOTHER_USERS_TRAINING,
        "owner": claim.job.owner.get_username() if claim and visible else None,
        "visible": visible,
        "training": training,
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
