"""Claims on slots, and the starts, live resizes and preemptions that change the slots of a job.

A claim is made on a free slot, vacated by a desired state, and released once the slot's process is gone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from core import live
from jobs.control.checkpoints import carry_checkpoints, is_resumable, look_for_newer_checkpoints
from jobs.control.dispatch import send_sync, wake_scheduler
from jobs.control.generations import add_point
from jobs.control.transition import Why, change, publish_slots, record, transition
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, Job, SlotClaim
from jobs.states import TRAINING, JobState
from workers.models import Host, Slot
from workers.topics import CLUSTER

__all__ = [
    "HALT_SECONDS",
    "ClaimLost",
    "hosts_of",
    "keep_lead",
    "led_by",
    "open_claims",
    "preempt",
    "raise_revisions",
    "register_attempt_start",
    "release_claims",
    "resize",
    "start",
    "stop_ranks",
]


#: Seconds that a step and its checkpoint may take before a stop on request, while nobody else waits for the slots.
HALT_SECONDS = 60.0
#: Functions called when an attempt starts, once its folder exists, registered by apps that import this one.
_attempt_starts: list[Callable[[Job, int], None]] = []


def register_attempt_start(begin: Callable[[Job, int], None]) -> None:
    """Call `begin(job, attempt)` as each attempt starts, in its transaction. Register from `AppConfig.ready`."""
    _attempt_starts.append(begin)


@transaction.atomic
def start(
    job: Job,
    slots: Sequence[Slot],
    target: int,
    why: Why,
    *,
    kind: str = "",
    backfilled_for: int | None = None,
    over_quota: bool = False,
    began_on: str = "",
) -> None:
    """Start the job's next attempt on free `slots`, in rank order. Raises ClaimLost if a slot is no longer free."""
    attempt = job.run.attempt + 1
    now = timezone.now()
    claims = _claim_slots(job, slots, attempt)
    look_for_newer_checkpoints(job)
    resumed = _resumed_checkpoint(job)
    first_start = job.started_at is None
    # A plain script that resumes by itself continues its curves.
    continues = not job.elastic and resumed is None and not first_start and is_resumable(job)
    job_folder(job).start_attempt(attempt)
    for begin in _attempt_starts:
        begin(job, attempt)
    carry_checkpoints(job, attempt)
    transition(
        job,
        JobState.STARTING,
        why,
        attempt=attempt,
        target_slots=target,
        target_kind=kind,
        target_revision=job.run.target_revision + 1,
        backfilled_for=backfilled_for,
        over_quota=over_quota,
        began_on=began_on,
        sealed=_all_know_handshake(),
        **led_by(job, claims[0].slot.host.name),
        **_initial_columns(job, now, resumed, continues=continues),
    )
    if not continues:
        # Points of the script's own output stay until the new attempt has passed them: it may continue by itself.
        kept = [] if job.elastic else list(job.run.curve_sources)
        job.metrics.filter(step__gt=job.run.step).exclude(name__in=kept).delete()
    if first_start:
        add_point(job, why, at=now, slots=0)
    raise_revisions(hosts_of(claims))


def _resumed_checkpoint(job: Job) -> Checkpoint | None:
    """Return the checkpoint from which the next attempt continues: its newest, else the submitted one."""
    newest = job.checkpoints.usable().first()
    if newest is None and job.starts_from == Job.StartsFrom.CHECKPOINT:
        return job.initial_checkpoint
    return newest


def _initial_columns(job: Job, now: datetime, resumed: Checkpoint | None, *, continues: bool) -> dict[str, Any]:
    """Return the columns that begin anew with each attempt. continues: the script goes on with its curves by itself."""
    return {
        "generation": 0,
        "slots": 0,
        "first_max_slots": job.run.first_max_slots or job.max_slots,
        "started_at": job.started_at or now,
        "ends_at": None if job.max_seconds is None else now + timedelta(seconds=job.max_seconds),
        "warned": False,
        "growth_limit": None,
        "idle_warned_at": None,
        "idle_shrunk_at": None,
        "idle_kept_until": None,
        "idle_keeps": 0,
        "step": resumed.step if resumed else 0,
        "epoch": resumed.epoch if resumed else 0,
        "error": {},
        "progress": job.run.progress if job.elastic else None,
        "series": job.run.series if continues or resumed else {},
    }


def _all_know_handshake() -> bool:
    """Return whether no host, also one that may come back, is of a release without the handshake."""
    return not Host.objects.exclude(state=Host.State.OFFLINE).filter(handshake=False).exists()


@transaction.atomic
def resize(job: Job, claim: Sequence[Slot], vacate: Sequence[Slot], target: int, why: Why, *, kind: str = "") -> None:
    """Change the slots of a STARTING or RUNNING job; its ranks follow live. Raises ClaimLost."""
    _claim_slots(job, claim, job.run.attempt)
    held = open_claims(job)
    leaving = {slot.pk for slot in vacate}
    revisions = raise_revisions(hosts_of(held))
    _vacate_claims([held_claim for held_claim in held if held_claim.slot_id in leaving], revisions)
    change(job, why, target_slots=target, target_kind=kind, target_revision=job.run.target_revision + 1)
    record(job, why)


@transaction.atomic
def preempt(
    job: Job, why: Why, after_stop: JobState = JobState.PENDING, *, within_seconds: float | None = None
) -> None:
    """Stop a job; it becomes `after_stop` once its slots are empty.

    An elastic job stops by itself after a step, with a checkpoint; also one that starts, because its first steps may
    not be reported yet. The ranks of other jobs, and of those that take longer than `within_seconds` (None: the
    instance group's grace period), are ended.
    """
    grants = float(job.instance_group.reclaim_grace_seconds) if within_seconds is None else within_seconds
    may_train = job.state in TRAINING and job.elastic
    transition(
        job,
        JobState.PREEMPTING,
        why,
        after_stop=after_stop,
        target_slots=0,
        target_revision=job.run.target_revision + 1,
        halt_until=timezone.now() + timedelta(seconds=grants) if may_train else None,
    )
    stop_ranks([job])


@transaction.atomic
def stop_ranks(jobs: Collection[Job]) -> None:
    """End every process of these jobs; their slots are released as they become empty."""
    held = _claims_of(jobs)
    if not held:
        return
    revisions = raise_revisions(hosts_of(held))
    _vacate_claims(held, revisions)


def led_by(job: Job, host: str) -> dict[str, Any]:
    """Return the columns by which another host leads the job from now on, and whoever led it before is fenced."""
    return {"lead_host": host, "lead_number": job.run.lead_number + 1}


@transaction.atomic
def keep_lead(job: Job) -> None:
    """Give a training job whose lead host holds none of its slots any more another lead host."""
    if job.state not in TRAINING:
        return
    claims = open_claims(job)
    hosts = [claim.slot.host.name for claim in claims if claim.vacating_at is None]
    if hosts and job.run.lead_host not in {claim.slot.host.name for claim in claims}:
        change(job, **led_by(job, hosts[0]))
        raise_revisions(hosts_of(claims))


@dataclass(frozen=True)
class ClaimLost(Exception):
    """Another job holds one of the slots by now: no slot was claimed."""

    job: int

    def __str__(self) -> str:
        return f"job={self.job}: a slot that was free in the plan is now held"


def open_claims(job: Job) -> list[SlotClaim]:
    """Return open claims in the order of their creation."""
    return _claims_of([job])


def _claims_of(jobs: Collection[Job]) -> list[SlotClaim]:
    return list(SlotClaim.objects.open().filter(job__in=jobs).select_related("slot__host").order_by("id"))


def hosts_of(claims: Iterable[SlotClaim]) -> set[int]:
    return {claim.slot.host_id for claim in claims}


@transaction.atomic
def _claim_slots(job: Job, slots: Sequence[Slot], attempt: int) -> list[SlotClaim]:
    """Claim `slots` for the job. The unique constraint decides between concurrent claims of a slot."""
    now = timezone.now()
    claims = [
        SlotClaim(slot=slot, gpu_model=slot.device_model, job=job, attempt=attempt, claimed_at=now) for slot in slots
    ]
    try:
        with transaction.atomic():
            SlotClaim.objects.bulk_create(claims)
    except IntegrityError:
        raise ClaimLost(job.pk) from None
    _publish_claims(claims, job.pk)
    return claims


@transaction.atomic
def _vacate_claims(claims: Sequence[SlotClaim], revisions: Mapping[int, int]) -> None:
    """Have the job give these slots back: a report that shows a slot empty releases it.

    revisions: host id -> revision of the desired state that vacates its slots.
    """
    now = timezone.now()
    kept = [claim for claim in claims if claim.vacating_at is None]
    for claim in kept:
        claim.vacating_at, claim.vacate_revision = now, revisions[claim.slot.host_id]
    SlotClaim.objects.bulk_update(kept, ["vacating_at", "vacate_revision"])
    _publish_claims(claims, None, vacating=True)


@transaction.atomic
def release_claims(claims: Iterable[SlotClaim]) -> None:
    """Release the empty slots, for any job."""
    claims = list(claims)
    SlotClaim.objects.open().filter(pk__in=[claim.pk for claim in claims]).update(released_at=timezone.now())
    _publish_claims(claims, None)
    if claims:
        wake_scheduler()


@transaction.atomic
def raise_revisions(hosts: Iterable[int]) -> dict[int, int]:
    """Raise the revision of each host's desired state, and send it after the commit. Returns host id -> revision."""
    wanted = sorted(set(hosts))
    # All code takes locks in one order, so that no two transactions wait for each other: jobs by id, then the cluster
    # topic (which nearly everything publishes to), then hosts by id.
    live.hold(CLUSTER)
    # One update per host keeps that order.
    for host in wanted:
        Host.objects.filter(pk=host).update(desired_revision=F("desired_revision") + 1)
    raised = Host.objects.filter(pk__in=wanted).values_list("pk", "name", "desired_revision")
    for _, name, _ in raised:
        transaction.on_commit(partial(send_sync, name))
    return {pk: revision for pk, _, revision in raised}


def _publish_claims(claims: Sequence[SlotClaim], job: int | None, *, vacating: bool = False) -> None:
    news = {"vacating": True} if vacating else {"job": job, "vacating": False, "training": False}
    publish_slots({str(claim.slot): news for claim in claims})
