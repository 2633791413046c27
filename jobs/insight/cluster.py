"""Every GPU of the cluster: who has it, what it does, and since when it does nothing."""

from collections import Counter
from datetime import datetime
from typing import Any

from django.utils import timezone

from core.live import CLUSTER, current_seqs
from core.roles import Asking, is_cluster_admin
from core.time import iso
from jobs.messages import ANOTHER_USERS_TRAINING
from jobs.models import SlotClaim
from workers.models import Host, Slot
from workers.queries import slots

__all__ = ["IDLE_AFTER_SECONDS", "STATUSES", "cluster_live", "host_slots", "slot_status"]


#: A held GPU that did nothing for so long is called idle. Data is loaded and checkpoints are written in less.
IDLE_AFTER_SECONDS = 60.0
#: Each GPU is one of these; the words that pages use.
STATUSES = {
    "busy": "training",
    "idle": "held but idle",
    "vacating": "changing hands",
    "free": "free",
    "draining": "draining, not offered",
    "offline": "offline",
}


def slot_status(host_state: str, *, held: bool, vacating: bool, idle_seconds: float | None) -> str:
    """One of `STATUSES`."""
    if host_state in {Host.State.OFFLINE, Host.State.LOST}:
        return "offline"
    if vacating:
        return "vacating"
    if held:
        return "idle" if idle_seconds is not None and idle_seconds >= IDLE_AFTER_SECONDS else "busy"
    return "draining" if host_state == Host.State.DRAINING else "free"


def cluster_live(user: Asking) -> dict[str, Any]:
    """Return all GPUs host by host, and how many there are of each status, for the page and REST."""
    seq = current_seqs([CLUSTER])[CLUSTER]
    hosts = [host for host in host_slots(user) if host["slots"]]
    counts = Counter(slot["status"] for host in hosts for slot in host["slots"])
    return {
        "seq": seq,
        "state": {},
        "append": {},
        "hosts": hosts,
        "counts": {status: counts[status] for status in STATUSES},
    }


def host_slots(user: Asking) -> list[dict[str, Any]]:
    """Return each slot with its holder, host by host. Other users' jobs have a number and nothing else."""
    now = timezone.now()
    claims = {claim.slot_id: claim for claim in SlotClaim.objects.open().order_by().select_related("job__owner")}
    hosts: dict[str, dict[str, Any]] = {}
    for slot in slots().order_by("host__name", "index"):
        host = slot.host
        entry = hosts.setdefault(
            host.name, {"host": host.name, "state": str(host.state), "virtual": host.virtual, "slots": []}
        )
        if slot.index < host.ngpus:
            entry["slots"].append(_slot(slot, claims.get(slot.pk), user, now))
    return list(hosts.values())


def _slot(slot: Slot, claim: SlotClaim | None, user: Asking, now: datetime) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    visible = claim is not None and (is_cluster_admin(user) or claim.job.owner_id == user.pk)
    vacating = claim is not None and claim.vacating_at is not None
    idle_since = idle_seconds = None
    if reading and reading.idle_since and claim:
        # Idleness counts from when it was given: what it was before is nobody's fault.
        idle_since = max(reading.idle_since, claim.claimed_at)
        idle_seconds = (now - idle_since).total_seconds()
    return {
        "key": f"{slot.host.name}:{slot.index}",
        "index": slot.index,
        "model": slot.device_model,
        "virtual": slot.virtual,
        "status": slot_status(slot.host.state, held=claim is not None, vacating=vacating, idle_seconds=idle_seconds),
        "job": claim.job_id if claim else None,
        "label": None if claim is None else claim.job.name if visible else ANOTHER_USERS_TRAINING,
        "owner": claim.job.owner.get_username() if claim and visible else None,
        "visible": visible,
        "vacating": vacating,
        "held_since": iso(claim.claimed_at) if claim else None,
        "idle_since": iso(idle_since),
        "utilisation_percent": reading.utilisation_percent if reading else None,
        "memory_used_bytes": reading.memory_used_bytes if reading else None,
        "memory_total_bytes": reading.memory_total_bytes if reading else None,
    }
