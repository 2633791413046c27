"""The scheduler's whole output: one line per job, with the reason for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from scheduling.snapshot import SlotRef

__all__ = ["BatchPlan", "Explanation", "GroupPlan", "JobPlan", "Plan", "PlanReason"]


class PlanReason(StrEnum):
    """Why a job has what it has: the stable code of each line of a plan."""

    WAITING_FOR_SLOTS = "WAITING_FOR_SLOTS"
    OVER_QUOTA = "OVER_QUOTA"
    GROUP_STOPPED = "GROUP_STOPPED"
    GANG_TOO_LARGE_NOW = "GANG_TOO_LARGE_NOW"
    BEHIND_HIGHER_PRIORITY = "BEHIND_HIGHER_PRIORITY"
    GRANTED = "GRANTED"
    BACKFILLED = "BACKFILLED"
    GREW_INTO_FREE_SLOTS = "GREW_INTO_FREE_SLOTS"
    SHRUNK_FOR_FAIR_SHARE = "SHRUNK_FOR_FAIR_SHARE"
    PREEMPTED_BY_PRIORITY = "PREEMPTED_BY_PRIORITY"
    GAVE_WAY = "GAVE_WAY"
    RECLAIMED_BY_OWNER = "RECLAIMED_BY_OWNER"
    REBALANCED = "REBALANCED"
    UNCHANGED = "UNCHANGED"
    LIMIT_CHANGED = "LIMIT_CHANGED"
    GREW_FOR_GOODPUT = "GREW_FOR_GOODPUT"
    MOVED_FOR_GOODPUT = "MOVED_FOR_GOODPUT"
    SHRUNK_FOR_GOODPUT = "SHRUNK_FOR_GOODPUT"
    AT_ITS_KNEE = "AT_ITS_KNEE"
    PROFILING = "PROFILING"
    PREPARING = "PREPARING"


@dataclass(slots=True)
class Explanation:
    code: PlanReason
    #: `message` names the rule that decided; the other params are its figures and names. JSON values only.
    params: dict[str, Any]


class BatchPlan(NamedTuple):
    """A prediction, for words: rank 0 decides, with newer figures."""

    #: Samples of a step, of a rank's micro-batch, and micro-batches beside the last one.
    batch: int
    micro_batch: int
    accumulation: int
    #: Steps at the job's own batch size per second.
    goodput: float


class GroupPlan(NamedTuple):
    """Quality of a group's division under policy goodput."""

    group: str
    #: Upper bound on the optimality gap, as a fraction of the best utility above the floors.
    gap: float
    #: Utility of one further slot.
    price: float
    #: Utility of one further slot of each kind of GPU, where there are several; `price` is then the highest.
    prices: Mapping[str, float] = {}


@dataclass(slots=True)
class JobPlan:
    job: int
    #: Number of slots that the job will have once all vacated slots are released.
    target: int
    #: Slots that it shall hold from now on: what it keeps plus `claim`. In rank order for new ranks.
    slots: tuple[SlotRef, ...]
    #: Free slots to claim now (a subset of `slots`).
    claim: tuple[SlotRef, ...]
    #: Held slots to give back at the next step boundary.
    vacate: tuple[SlotRef, ...]
    #: Stop the job and put it back into the queue.
    preempt: bool
    reason: Explanation
    #: Waiting job before which this one starts, on slots that it needs; None: there is none.
    backfilled_for: int | None = None
    #: True if the job starts now by a reservation, on more than its group's part, and keeps that.
    over_quota: bool = False
    #: Slots that a job with a reservation is to have, as far as they are known.
    reserved: tuple[SlotRef, ...] = ()
    #: Batch of a job with a profile, on its target.
    batch: BatchPlan | None = None
    #: Kind of GPU that it shall train on. None: there is one alone, or nobody cares which.
    kind: str | None = None
    #: Model of its GPUs, if its results depend on it; see `scheduling.one_kind`.
    began_on: str = ""


@dataclass(frozen=True)
class Plan:
    #: One line for every job of the snapshot, in order of job id.
    jobs: tuple[JobPlan, ...]
    #: Groups under policy goodput, in order of name.
    groups: tuple[GroupPlan, ...] = ()
