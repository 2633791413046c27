"""The lease of the leading scheduler, and the application of the leader's plans. Used by the scheduler's process only.

The lease is one row, whose epoch each new leader raises; only the database's clock counts. A plan is written in one
transaction, and only while its epoch holds.
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
#: Seconds between renewals of the lease during a cycle, which may take longer than the lease.
RENEW_SECONDS = LEASE_SECONDS / 3
#: Params of a reason for slots that are not released yet, that are to be left, or that draining hosts keep.
_ON_MOVES = ("missing", "moving_off", "leaving", "moves_to_kind", "hosts", "preparing")
#: Params of a reason for the study of a job, which counts as one training.
_OF_A_STUDY = ("study_slots", "study_trainings", "study_priority")


class Leadership:
    """A candidate for the lead. `epoch` is None while another scheduler leads."""

    def __init__(self, holder: str | None = None) -> None:
        self._holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self.epoch: int | None = None
        #: Columns to write with the next renewal.
        self._counted: dict[str, Any] = {}

    def count_cycle(self, seconds: float, decided_at: datetime) -> None:
        """Count a cycle, with its duration and the time of its plan."""
        spent = F("cycles_seconds") + seconds
        self._counted = {"decided_at": decided_at, "cycles": F("cycles") + 1, "cycles_seconds": spent}

    def renew(self) -> int | None:
        """Renew the lease, or take it over once it has expired; returns the epoch to write plans with."""
        # An expired lease that nobody has taken over still has our epoch, and can be renewed.
        if self.epoch is not None and not self._mine(self.epoch).update(expires_at=_expiry(), **self._counted):
            self.epoch = None
        self._counted = {}
        if self.epoch is None:
            self.epoch = self._take_over()
        return self.epoch

    @contextmanager
    def held(self) -> Iterator[None]:
        """Renew the lease from a separate thread while the block runs, until another scheduler takes it over.

        A cycle that never ends keeps the lead, too: `still_alive` shows that the process is stuck.
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
            # A plan is written only under the lease's epoch: a failed renewal can only cost the lead.
            logger.warning("epoch=%s lease renewal failed, retrying: %s", epoch, error)
            connection.close()
            return True

    def resign(self) -> None:
        """Give up the lead, so that another scheduler can take it over at once."""
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
    """Another scheduler leads by now: the plan was not written."""


def lock_lead(epoch: int) -> None:
    """Hold the lead until the transaction ends. Raises LeadershipLost if the lease has another epoch."""
    if not SchedulerLease.objects.select_for_update().filter(pk=1, epoch=epoch).exists():
        raise LeadershipLost(f"epoch {epoch} is over")


@transaction.atomic
def apply(plan: Plan, epoch: int) -> list[int]:
    """Write `plan` if the lease still has `epoch`; returns the changed jobs.

    Jobs that changed since the snapshot, or whose slots are taken by now, are skipped: the next cycle decides about
    them again.
    """
    lock_lead(epoch)
    lines = _changing(plan)
    # All at once and in order of id: no deadlock with code that locks jobs one by one in that order.
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
            logger.info("job=%s is skipped: %s", job.pk, error)
    told = [(job, columns) for job, columns in told if columns]
    change_all(told)
    if lines:  # the row was locked, so no other thread could renew the lease
        SchedulerLease.objects.update(expires_at=_expiry())
    return sorted([*moved, *(job.pk for job, _ in told)])


def _changing(plan: Plan) -> list[JobPlan]:
    """Return the lines that change something, in order of job id."""
    jobs = Job.objects.select_related("run").in_bulk([line.job for line in plan.jobs])
    return [line for line in plan.jobs if line.job in jobs and not _is_carried_out(line, jobs[line.job])]


def _is_carried_out(line: JobPlan, job: Job) -> bool:
    moves = line.claim or line.vacate or line.preempt
    return not moves and not _targets(line, job) and not _explains_anew(line, job)


def _explains_anew(line: JobPlan, job: Job) -> bool:
    """Return whether the line changes the reason. UNCHANGED keeps the former reason, unless the policy or the figures
    of the job's study have changed, or that reason tells of a move that is over."""
    code, params = line.reason.code, line.reason.params
    if (code, params) == (job.reason_code, job.reason_params):
        return False
    policies = {job.reason_params.get("policy"), params.get("policy")} - {None}
    if code != PlanReason.UNCHANGED or len(policies) == 2:
        return True
    if any(name in job.reason_params and job.reason_params[name] != params.get(name) for name in _OF_A_STUDY):
        return True
    # No query as long as nothing moves: hardly any reason tells of a move.
    return any(map(job.reason_params.get, _ON_MOVES)) and not _releases_slots(job)


def _releases_slots(job: Job) -> bool:
    return SlotClaim.objects.open().filter(job=job, vacating_at__isnull=False).exists()


def _moves_nothing(job: Job, line: JobPlan, claim: Sequence[Slot], vacate: Sequence[Slot]) -> bool:
    """Return whether the line changes only the job's target and reason."""
    if job.state == JobState.PENDING:
        return len(claim) < job.min_slots or len(claim) < len(line.claim)
    return job.state in TRAINING and not (line.preempt or claim or vacate)


def _news(line: JobPlan, job: Job) -> dict[str, Any]:
    columns = _why(line).columns if _explains_anew(line, job) else {}
    return columns | _targets(line, job)


def _targets(line: JobPlan, job: Job) -> dict[str, Any]:
    """Return the columns of the job's target that the line changes."""
    wanted = {"target_slots": line.target, "target_kind": line.kind or ""}
    if line.began_on and job.state in TRAINING:  # unknown of a job that began under a former release
        wanted["began_on"] = line.began_on
    return {column: value for column, value in wanted.items() if getattr(job.run, column) != value}


def _move(job: Job, line: JobPlan, claim: Sequence[Slot], vacate: Sequence[Slot]) -> bool:
    """Start, resize or stop the job; False if it is skipped."""
    if job.state == JobState.PENDING:
        if SlotClaim.objects.open().filter(job=job).exists():
            return False  # processes of the former attempt are still ending
        start(
            job, claim, line.target, _why(line),
            kind=line.kind or "", backfilled_for=line.backfilled_for, over_quota=line.over_quota,
            began_on=line.began_on,
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
    """Return job -> the slots that it holds and has not been told to give back, for the lines that vacate any."""
    held = SlotClaim.objects.kept().filter(job__in=[line.job for line in lines if line.vacate]).order_by()
    kept: dict[int, set[SlotRef]] = defaultdict(set)
    for job, host, index in held.values_list("job", "slot__host__name", "slot__index"):
        kept[job].add(SlotRef(host, index))
    return kept


def _slots(lines: Sequence[JobPlan]) -> dict[SlotRef, Slot]:
    wanted = {ref for line in lines for ref in (*line.claim, *line.vacate)}
    rows = Slot.objects.select_related("host").filter(host__name__in={ref.host for ref in wanted})
    return {ref: slot for slot in rows if (ref := SlotRef(slot.host.name, slot.index)) in wanted}
