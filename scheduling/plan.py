"""The scheduler's whole output: one line per job, with the reason for it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from scheduling.snapshot import SlotRef

__all__ = ["Explanation", "JobPlan", "Plan", "PlanReason"]


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


@dataclass(slots=True)
class Explanation:
    code: PlanReason
    #: `message` names the rule that decided; the other params are its figures and names. JSON values only.
    params: dict[str, Any]


@dataclass(slots=True)
class JobPlan:
    job: int
    #: How many slots the job shall have once everything that is being vacated has changed hands.
    target: int
    #: Slots that it shall hold from now on: what it keeps plus `claim`. In rank order for new ranks.
    slots: tuple[SlotRef, ...]
    #: Free slots to claim now (a subset of `slots`).
    claim: tuple[SlotRef, ...]
    #: Held slots to give back at the next step boundary.
    vacate: tuple[SlotRef, ...]
    #: Stop the job and put it back into the queue (only ever under the priority policy with preemption).
    preempt: bool
    reason: Explanation
    #: It starts now on slots reserved for this job, for which it is stopped again; None: it does not.
    gives_way_to: int | None = None
    #: It starts now by a reservation, on more than its group's part, and keeps it.
    above_part: bool = False
    #: Of a job that has a reservation: slots that it is to have, as far as it is known which.
    reserved: tuple[SlotRef, ...] = ()


@dataclass(frozen=True)
class Plan:
    #: One line for every job of the snapshot, in order of job id.
    jobs: tuple[JobPlan, ...]
