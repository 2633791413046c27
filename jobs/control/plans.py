"""The lead among schedulers, and the application of the leader's plans. Used by the scheduler's process only.

The lead is a lease in one row, whose epoch each new leader raises; the database's clock alone decides. A plan is
written in one transaction, and only while its epoch holds.
"""

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from jobs.control.lifecycle import ClaimLost, preempt, resize, start
from jobs.control.transition import StaleJob, Why, change, lock_job
from jobs.models import Job, SchedulerLease, SlotClaim
from jobs.states import TRAINING, JobState
from scheduling.plan import JobPlan, Plan, PlanReason
from scheduling.snapshot import SlotRef
from workers.models import Slot

__all__ = ["Leadership", "LeadershipLost", "apply"]

logger = logging.getLogger(__name__)

LEASE_SECONDS = 3.0


class Leadership:
    """A candidate for the lead. `epoch` is None while somebody else leads."""

    def __init__(self, holder: str | None = None) -> None:
        self._holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self.epoch: int | None = None
        #: Columns to be written in passing, with the next renewal.
        self._counted: dict[str, Any] = {}

    def count_cycle(self, seconds: float, decided_at: datetime) -> None:
        """Count a cycle: how long it took, and when its plan was carried out."""
        spent = F("cycles_seconds") + seconds
        self._counted = {"decided_at": decided_at, "cycles": F("cycles") + 1, "cycles_seconds": spent}

    def renew(self) -> int | None:
        """Keep the lead, or take it over once it has expired; returns the epoch to write plans with."""
        # An expired lease that nobody has taken over is still ours: the epoch says so.
        if self.epoch is not None and not self._mine(self.epoch).update(expires_at=_expiry(), **self._counted):
            self.epoch = None
        self._counted = {}
        if self.epoch is None:
            self.epoch = self._take_over()
        return self.epoch

    def resign(self) -> None:
        """Let another one lead at once."""
        if self.epoch is not None:
            self._mine(self.epoch).update(expires_at=Now())
            self.epoch = None

    def _mine(self, epoch: int) -> QuerySet[SchedulerLease]:
        return SchedulerLease.objects.filter(pk=1, epoch=epoch, holder=self._holder)

    @transaction.atomic
    def _take_over(self) -> int | None:
        SchedulerLease.objects.get_or_create(pk=1)
        expired = SchedulerLease.objects.filter(pk=1).filter(Q(expires_at__isnull=True) | Q(expires_at__lte=Now()))
        taken = expired.update(epoch=F("epoch") + 1, holder=self._holder, expires_at=_expiry())
        return SchedulerLease.objects.values_list("epoch", flat=True).get(pk=1) if taken else None


def _expiry() -> Combinable:
    return Now() + timedelta(seconds=LEASE_SECONDS)


class LeadershipLost(Exception):
    """Another scheduler leads by now: nothing of the plan was written."""


@transaction.atomic
def apply(plan: Plan, epoch: int) -> list[int]:
    """Write `plan` if the lease still has `epoch`; returns the jobs that it changed.

    A job that changed since the snapshot, or whose slots somebody else took, is left as it is: the next cycle decides
    about it again.
    """
    if not SchedulerLease.objects.select_for_update().filter(pk=1, epoch=epoch).exists():
        raise LeadershipLost(f"epoch {epoch} is over")
    lines = _changing(plan)
    # All at once and in order of id: whoever locks jobs one by one in this order never waits for us in a circle.
    list(Job.objects.select_for_update().filter(pk__in=[line.job for line in lines]).order_by("pk"))
    slots = _slots(lines)
    changed = []
    for line in lines:
        try:
            with transaction.atomic():
                if _apply_line(line, slots):
                    changed.append(line.job)
        except (StaleJob, ClaimLost) as error:
            logger.info("job=%s keeps what it has: %s", line.job, error)
    return changed


def _changing(plan: Plan) -> list[JobPlan]:
    """The lines that say something new, in order of job id."""
    jobs = Job.objects.select_related("run").in_bulk([line.job for line in plan.jobs])
    return [line for line in plan.jobs if line.job in jobs and not _is_carried_out(line, jobs[line.job])]


def _is_carried_out(line: JobPlan, job: Job) -> bool:
    moves = line.claim or line.vacate or line.preempt
    return not moves and job.run.target_slots == line.target and not _explains_anew(line, job)


def _explains_anew(line: JobPlan, job: Job) -> bool:
    """ "Nothing changes" leaves the reason for which the job got what it has."""
    reason = line.reason
    return reason.code != PlanReason.UNCHANGED and (reason.code, reason.params) != (job.reason_code, job.reason_params)


def _apply_line(line: JobPlan, slots: Mapping[SlotRef, Slot]) -> bool:
    job = lock_job(line.job)
    why = Why(line.reason.code, line.reason.params, "scheduler")
    if job.state == JobState.PENDING:
        return _apply_to_waiting(job, line, why, slots)
    if job.state not in TRAINING:
        return False
    if line.preempt:
        preempt(job, why)
        return True
    claim, vacate = _found(line.claim, slots), _found(_not_yet_vacating(job, line.vacate), slots)
    if claim or vacate:
        resize(job, claim, vacate, line.target, why)
        return True
    return _explain(job, line, why)


def _apply_to_waiting(job: Job, line: JobPlan, why: Why, slots: Mapping[SlotRef, Slot]) -> bool:
    claim = _found(line.claim, slots)
    if len(claim) < job.min_slots or len(claim) < len(line.claim):
        return _explain(job, line, why)
    if SlotClaim.objects.open().filter(job=job).exists():
        # Processes of its former life are still ending.
        return False
    start(job, claim, line.target, why)
    return True


def _explain(job: Job, line: JobPlan, why: Why) -> bool:
    shown = why if _explains_anew(line, job) else None
    if shown is None and job.run.target_slots == line.target:
        return False
    change(job, shown, target_slots=line.target)
    return True


def _not_yet_vacating(job: Job, refs: Sequence[SlotRef]) -> list[SlotRef]:
    if not refs:
        return []
    held = SlotClaim.objects.kept().filter(job=job)
    kept = {SlotRef(*pair) for pair in held.values_list("slot__host__name", "slot__index")}
    return [ref for ref in refs if ref in kept]


def _found(refs: Sequence[SlotRef], slots: Mapping[SlotRef, Slot]) -> list[Slot]:
    return [slots[ref] for ref in refs if ref in slots]


def _slots(lines: Sequence[JobPlan]) -> dict[SlotRef, Slot]:
    wanted = {ref for line in lines for ref in (*line.claim, *line.vacate)}
    rows = Slot.objects.select_related("host").filter(host__name__in={ref.host for ref in wanted})
    return {ref: slot for slot in rows if (ref := SlotRef(slot.host.name, slot.index)) in wanted}
