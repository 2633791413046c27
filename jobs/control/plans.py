"""The lead among schedulers, and the application of the leader's plans. Used by the scheduler's process only.

The lead is a lease in one row, whose epoch each new leader raises; the database's clock alone decides. A plan is
written in one transaction, and only while its epoch holds.
"""

import logging
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from jobs.control.lifecycle import ClaimLost, preempt, resize, start
from jobs.control.transition import StaleJob, Why, change_all, lock_jobs
from jobs.models import Job, SchedulerLease, SlotClaim
from jobs.states import TRAINING, JobState
from scheduling.plan import JobPlan, Plan, PlanReason
from scheduling.snapshot import SlotRef
from workers.models import Slot

__all__ = ["Leadership", "LeadershipLost", "apply", "lock_lead"]

logger = logging.getLogger(__name__)

LEASE_SECONDS = 3.0
#: How often the leader renews its lease beside a cycle, which may take longer than the lease.
RENEW_SECONDS = LEASE_SECONDS / 3


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

    @contextmanager
    def held(self) -> Iterator[None]:
        """Renew the lease from a thread of its own for as long as the block takes, unless another one leads by then.

        A cycle that never ends keeps the lead too: that the process is stuck shows in `still_alive`.
        """
        over = threading.Event()
        renewing = threading.Thread(target=self._renew_until, args=(over, self.epoch), name="lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()

    def _renew_until(self, over: threading.Event, epoch: int) -> None:
        try:
            while not over.wait(RENEW_SECONDS):
                if not self._renewed(epoch):
                    return
        finally:
            connection.close()

    def _renewed(self, epoch: int) -> bool:
        try:
            return bool(self._mine(epoch).update(expires_at=_expiry()))
        except DatabaseError as error:
            # The plan is written only if the lease still has its epoch: who could not renew it may lose it, no more.
            logger.warning("epoch=%s the lease was not renewed, it is tried again: %s", epoch, error)
            connection.close()
            return True

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
    """Another scheduler leads by now: nothing was written."""


def lock_lead(epoch: int) -> None:
    """Keep the lead until the transaction ends. Raises LeadershipLost if the lease has another epoch."""
    if not SchedulerLease.objects.select_for_update().filter(pk=1, epoch=epoch).exists():
        raise LeadershipLost(f"epoch {epoch} is over")


@transaction.atomic
def apply(plan: Plan, epoch: int) -> list[int]:
    """Write `plan` if the lease still has `epoch`; returns the jobs that it changed.

    A job that changed since the snapshot, or whose slots somebody else took, is left as it is: the next cycle decides
    about it again.
    """
    lock_lead(epoch)
    lines = _changing(plan)
    # All at once and in order of id: whoever locks jobs one by one in this order never waits for us in a circle.
    jobs = {job.pk: job for job in lock_jobs(line.job for line in lines)}
    slots, kept = _slots(lines), _kept(lines)
    moved, told = list[int](), list[tuple[Job, dict[str, Any]]]()
    for line in lines:
        job = jobs[line.job]
        claim = [slots[ref] for ref in line.claim if ref in slots]
        vacate = [slots[ref] for ref in line.vacate if ref in kept[job.pk]]
        if _moves_nothing(job, line, claim, vacate):
            told.append((job, _news(line, job)))
            continue
        try:
            with transaction.atomic():
                if _move(job, line, claim, vacate):
                    moved.append(job.pk)
        except (StaleJob, ClaimLost) as error:
            logger.info("job=%s keeps what it has: %s", job.pk, error)
    told = [(job, columns) for job, columns in told if columns]
    change_all(told)
    if lines:  # nobody could renew it meanwhile: its row was locked
        SchedulerLease.objects.update(expires_at=_expiry())
    return sorted([*moved, *(job.pk for job, _ in told)])


def _changing(plan: Plan) -> list[JobPlan]:
    """The lines that say something new, in order of job id."""
    jobs = Job.objects.select_related("run").in_bulk([line.job for line in plan.jobs])
    return [line for line in plan.jobs if line.job in jobs and not _is_carried_out(line, jobs[line.job])]


def _is_carried_out(line: JobPlan, job: Job) -> bool:
    moves = line.claim or line.vacate or line.preempt
    return not moves and not _targets(line, job) and not _explains_anew(line, job)


def _explains_anew(line: JobPlan, job: Job) -> bool:
    """ "Nothing changes" leaves the reason for which the job got what it has, unless another policy gave it."""
    code, params = line.reason.code, line.reason.params
    policies = {job.reason_params.get("policy"), params.get("policy")} - {None}
    if code == PlanReason.UNCHANGED and len(policies) < 2:
        return False
    return (code, params) != (job.reason_code, job.reason_params)


def _moves_nothing(job: Job, line: JobPlan, claim: Sequence[Slot], vacate: Sequence[Slot]) -> bool:
    """Return whether the line only says anew what the job shall have, and why."""
    if job.state == JobState.PENDING:
        return len(claim) < job.min_slots or len(claim) < len(line.claim)
    return job.state in TRAINING and not (line.preempt or claim or vacate)


def _news(line: JobPlan, job: Job) -> dict[str, Any]:
    columns = _why(line).columns if _explains_anew(line, job) else {}
    return columns | _targets(line, job)


def _targets(line: JobPlan, job: Job) -> dict[str, Any]:
    """What the job shall have by the line, as far as that is new."""
    wanted = {"target_slots": line.target, "target_kind": line.kind or ""}
    return {column: value for column, value in wanted.items() if getattr(job.run, column) != value}


def _move(job: Job, line: JobPlan, claim: Sequence[Slot], vacate: Sequence[Slot]) -> bool:
    """Start, resize or stop the job; False where it is left as it is."""
    if job.state == JobState.PENDING:
        if SlotClaim.objects.open().filter(job=job).exists():
            return False  # processes of its former life are still ending
        start(
            job, claim, line.target, _why(line),
            kind=line.kind or "", gives_way_to=line.gives_way_to, above_part=line.above_part,
        )  # fmt: skip
    elif job.state not in TRAINING:
        return False
    elif line.preempt:
        preempt(job, _why(line))
    else:
        resize(job, claim, vacate, line.target, _why(line), kind=line.kind or "")
    return True


def _why(line: JobPlan) -> Why:
    return Why(line.reason.code, line.reason.params, "scheduler")


def _kept(lines: Sequence[JobPlan]) -> dict[int, set[SlotRef]]:
    """Job -> the slots that it holds and has not been told to give back; of the lines that vacate any."""
    held = SlotClaim.objects.kept().filter(job__in=[line.job for line in lines if line.vacate]).order_by()
    kept: dict[int, set[SlotRef]] = defaultdict(set)
    for job, host, index in held.values_list("job", "slot__host__name", "slot__index"):
        kept[job].add(SlotRef(host, index))
    return kept


def _slots(lines: Sequence[JobPlan]) -> dict[SlotRef, Slot]:
    wanted = {ref for line in lines for ref in (*line.claim, *line.vacate)}
    rows = Slot.objects.select_related("host").filter(host__name__in={ref.host for ref in wanted})
    return {ref: slot for slot in rows if (ref := SlotRef(slot.host.name, slot.index)) in wanted}
