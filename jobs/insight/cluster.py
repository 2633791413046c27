"""Every GPU of the cluster: who has it, what it does, and since when it does nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.utils import timezone

from core.live import CLUSTER, current_seqs
from core.time import iso
from jobs.messages import ANOTHER_USERS_TRAINING
from jobs.models import SlotClaim
from workers.models import Host, Slot

__all__ = ["IDLE_AFTER_SECONDS", "STATUSES", "cluster_live", "slot_status"]

User = AbstractBaseUser | AnonymousUser

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


def cluster_live(user: User) -> dict[str, Any]:
    """All GPUs host by host, and how many there are of each status. What the page shows, fetches, and REST gives."""
    seq = current_seqs([CLUSTER])[CLUSTER]
    hosts = _hosts(user, timezone.now())
    counts = Counter(slot["status"] for host in hosts for slot in host["slots"])
    return {
        "seq": seq,
        "state": {},
        "append": {},
        "hosts": hosts,
        "counts": {status: counts[status] for status in STATUSES},
    }


def _hosts(user: User, now: datetime) -> list[dict[str, Any]]:
    claims = {
        claim.slot_id: claim
        for claim in SlotClaim.objects.filter(released_at__isnull=True).order_by().select_related("job__owner")
    }
    hosts: dict[str, dict[str, Any]] = {}
    for slot in _slots():
        host = slot.host
        entry = hosts.setdefault(
            host.name, {"host": host.name, "state": str(host.state), "virtual": host.virtual, "slots": []}
        )
        entry["slots"].append(_slot(slot, claims.get(slot.pk), user, now))
    return list(hosts.values())


def _slots() -> Sequence[Slot]:
    slots = Slot.objects.filter(host__removed_at=None).select_related("host", "reading")
    return [slot for slot in slots.order_by("host__name", "index") if slot.index < slot.host.ngpus]


def _slot(slot: Slot, claim: SlotClaim | None, user: User, now: datetime) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    visible = claim is not None and (getattr(user, "is_staff", False) or claim.job.owner_id == user.pk)
    idle_since = _idle_since(reading.idle_since if reading else None, claim)
    vacating = claim is not None and claim.vacating_at is not None
    idle_seconds = None if idle_since is None else (now - idle_since).total_seconds()
    return {
        "key": f"{slot.host.name}:{slot.index}",
        "index": slot.index,
        "model": slot.device_model,
        "status": slot_status(slot.host.state, held=claim is not None, vacating=vacating, idle_seconds=idle_seconds),
        "job": claim.job_id if claim else None,
        "label": None if claim is None else claim.job.name if visible else ANOTHER_USERS_TRAINING,
        "owner": claim.job.owner.get_username() if claim and visible else None,
        "visible": visible,
        "held_since": iso(claim.claimed_at) if claim else None,
        "idle_since": iso(idle_since),
        "utilisation_percent": reading.utilisation_percent if reading else None,
        "memory_used_bytes": reading.memory_used_bytes if reading else None,
        "memory_total_bytes": reading.memory_total_bytes if reading else None,
    }


def _idle_since(idle_since: datetime | None, claim: SlotClaim | None) -> datetime | None:
    """Idleness counts from when it was given: what it was before is nobody's fault."""
    return None if idle_since is None or claim is None else max(idle_since, claim.claimed_at)
