"""Slot claims: made on free slots, vacated by a desired state, released once their process is gone.

For the other modules of jobs.control.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from core import live
from jobs.control.dispatch import announce_desired
from jobs.control.wake import wake_scheduler
from jobs.models import Job, SlotClaim
from workers.models import Host, Slot

__all__ = [
    "ClaimLost",
    "claim_slots",
    "hosts_of",
    "hosts_of_attempt",
    "open_claims",
    "raise_revisions",
    "release_claims",
    "vacate_claims",
]


@dataclass(frozen=True)
class ClaimLost(Exception):
    """Somebody else holds one of the slots by now: nothing of it was claimed."""

    job: int

    def __str__(self) -> str:
        return f"job {self.job}: a slot that the plan saw free is held by now"


def open_claims(job: Job) -> list[SlotClaim]:
    """In the order in which they were made."""
    claims = SlotClaim.objects.filter(job=job, released_at__isnull=True)
    return list(claims.select_related("slot__host").order_by("id"))


def hosts_of(claims: Iterable[SlotClaim]) -> set[int]:
    return {claim.slot.host_id for claim in claims}


def hosts_of_attempt(job: Job) -> set[int]:
    """Where the job's present attempt has held a slot: something of it may still be there."""
    claims = SlotClaim.objects.filter(job=job, attempt=job.run.attempt)
    return set(claims.values_list("slot__host_id", flat=True))


@transaction.atomic
def claim_slots(job: Job, slots: Sequence[Slot], attempt: int) -> list[SlotClaim]:
    """Hold `slots` for the job. The unique constraint decides between two that want the same slot."""
    now = timezone.now()
    claims = [
        SlotClaim(slot=slot, gpu_model=slot.device_model, job=job, attempt=attempt, claimed_at=now) for slot in slots
    ]
    try:
        with transaction.atomic():
            SlotClaim.objects.bulk_create(claims)
    except IntegrityError:
        raise ClaimLost(job.pk) from None
    _publish(claims, job.pk)
    return claims


@transaction.atomic
def vacate_claims(claims: Sequence[SlotClaim], revisions: Mapping[int, int]) -> None:
    """The job shall give these slots back: each is released by a report that shows it empty.

    `revisions` are those of the desired states that say so, by host id.
    """
    now = timezone.now()
    for claim in claims:
        if claim.vacating_at is None:
            claim.vacating_at, claim.vacate_revision = now, revisions[claim.slot.host_id]
            claim.save(update_fields=["vacating_at", "vacate_revision"])
    _publish(claims, None, vacating=True)


@transaction.atomic
def release_claims(claims: Iterable[SlotClaim]) -> None:
    """The slots are empty: whoever comes next may have them."""
    claims = list(claims)
    SlotClaim.objects.filter(pk__in=[claim.pk for claim in claims], released_at__isnull=True).update(
        released_at=timezone.now()
    )
    _publish(claims, None)
    if claims:
        wake_scheduler()


@transaction.atomic
def raise_revisions(hosts: Iterable[int]) -> dict[int, int]:
    """Give each host's desired state a new revision and send it after the commit. Returns host id -> revision."""
    wanted = sorted(set(hosts))
    # Locks are taken in one order everywhere, so that no two transactions wait for each other: jobs by id, then the
    # cluster topic (which nearly everything publishes to), then hosts by id.
    live.hold(live.CLUSTER)
    # One update per host keeps that order.
    for host in wanted:
        Host.objects.filter(pk=host).update(desired_revision=F("desired_revision") + 1)
    raised = Host.objects.filter(pk__in=wanted).values_list("pk", "name", "desired_revision")
    for _, name, _ in raised:
        announce_desired(name)
    return {pk: revision for pk, _, revision in raised}


def _publish(claims: Sequence[SlotClaim], job: int | None, *, vacating: bool = False) -> None:
    if not claims:
        return
    news = {
        f"{claim.slot.host.name}:{claim.slot.index}": (
            {"vacating": True} if vacating else {"job": job, "vacating": False}
        )
        for claim in claims
    }
    live.publish(live.CLUSTER, "state", {"slots": news})
