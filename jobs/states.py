"""States, reasons and legal transitions of jobs, generations and ranks, as data.

docs/states.md documents the same; tests/test_docs.py compares the two.
"""

from enum import StrEnum

from scheduling.plan import PlanReason

__all__ = [
    "ACTIVE",
    "HOLDING",
    "JOB_TRANSITIONS",
    "LIVE_RANKS",
    "TERMINAL",
    "TRAINING",
    "UNDOABLE",
    "WAITING",
    "AnyReason",
    "GenerationState",
    "JobState",
    "RankState",
    "Reason",
    "choices",
    "reason_of",
]


class JobState(StrEnum):
    PENDING = "PENDING"  # waiting for slots
    STARTING = "STARTING"  # holds slots; no generation is active yet
    RUNNING = "RUNNING"  # training; resizes do not change the state
    PREEMPTING = "PREEMPTING"  # being stopped, to be resumed later
    CANCELLING = "CANCELLING"  # being stopped for good
    SUSPENDED = "SUSPENDED"  # suspended by its owner or its time limit
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: (old, new) -> cause of the transition.
JOB_TRANSITIONS: dict[tuple[JobState, JobState], str] = {
    (JobState.PENDING, JobState.STARTING): "dispatch, once at least min_slots slots are claimed",
    (JobState.PENDING, JobState.SUSPENDED): "the owner suspends it",
    (JobState.PENDING, JobState.CANCELLED): "the owner cancels it before it holds anything",
    (JobState.PENDING, JobState.FAILED): "it can never start, or it ended too often without progress",
    (JobState.STARTING, JobState.RUNNING): "the coordinator reports its first generation",
    (JobState.STARTING, JobState.SUCCEEDED): "a script that ended well without a session",
    (JobState.STARTING, JobState.PENDING): "its ranks were lost before they trained",
    (
        JobState.STARTING,
        JobState.PREEMPTING,
    ): "higher priority, a reservation, its time limit, the owner's suspension, or a draining host",
    (JobState.STARTING, JobState.CANCELLING): "the owner cancels it",
    (JobState.STARTING, JobState.FAILED): "its script ended with an error",
    (JobState.RUNNING, JobState.SUCCEEDED): "training is finished and all its ranks are gone",
    (JobState.RUNNING, JobState.FAILED): "its script ended with an error",
    (JobState.RUNNING, JobState.PENDING): "every rank was lost: it continues from its last checkpoint",
    (
        JobState.RUNNING,
        JobState.PREEMPTING,
    ): "higher priority, a reservation, its time limit, the owner's suspension, or a draining host",
    (JobState.RUNNING, JobState.CANCELLING): "the owner cancels it",
    (JobState.PREEMPTING, JobState.PENDING): "its slots are empty",
    (JobState.PREEMPTING, JobState.SUSPENDED): "its slots are empty, and its owner or its time limit suspends it",
    (JobState.PREEMPTING, JobState.CANCELLING): "the owner cancels it meanwhile",
    (JobState.PREEMPTING, JobState.SUCCEEDED): "it finished before it was stopped",
    (JobState.PREEMPTING, JobState.FAILED): "its script ended with an error before it was stopped",
    (JobState.SUSPENDED, JobState.PENDING): "the owner resumes it",
    (JobState.SUSPENDED, JobState.CANCELLED): "the owner cancels it",
    (JobState.CANCELLING, JobState.CANCELLED): "its slots are empty",
}

TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
#: States without slots, from which a job may train later.
WAITING = frozenset({JobState.PENDING, JobState.SUSPENDED})
#: States with ranks; in all other states, processes shall end.
TRAINING = frozenset({JobState.STARTING, JobState.RUNNING})
#: States in which a job may hold slots.
HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.PREEMPTING, JobState.CANCELLING})
#: States of jobs that a plan decides about.
ACTIVE = frozenset({JobState.PENDING, JobState.STARTING, JobState.RUNNING})


class GenerationState(StrEnum):
    FORMING = "FORMING"
    ACTIVE = "ACTIVE"
    ABANDONED = "ABANDONED"
    SUPERSEDED = "SUPERSEDED"
    ENDED = "ENDED"


class RankState(StrEnum):
    LAUNCHING = "LAUNCHING"
    JOINING = "JOINING"
    READY = "READY"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EXITED = "EXITED"
    LOST = "LOST"


#: States of ranks whose process is alive.
LIVE_RANKS = frozenset(RankState) - {RankState.EXITED, RankState.LOST}


class Reason(StrEnum):
    """Stable codes of the reasons that do not come from a plan; lines of a plan have a `PlanReason`."""

    SUBMITTED = "SUBMITTED"
    STARTED = "STARTED"
    HOST_LOST = "HOST_LOST"
    HOST_LEAVES = "HOST_LEAVES"
    GPUS_IDLE = "GPUS_IDLE"
    RANK_LOST = "RANK_LOST"
    GROWTH_GIVEN_UP = "GROWTH_GIVEN_UP"
    STACK_STOPPED = "STACK_STOPPED"
    LAUNCH_TIMEOUT = "LAUNCH_TIMEOUT"
    ENVIRONMENT_BUILDING = "ENVIRONMENT_BUILDING"
    ENVIRONMENT_FAILED = "ENVIRONMENT_FAILED"
    ENVIRONMENT_CHANGED = "ENVIRONMENT_CHANGED"
    SECRETS_FAILED = "SECRETS_FAILED"
    EXIT_NONZERO = "EXIT_NONZERO"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NO_PROGRESS = "NO_PROGRESS"
    TIME_LIMIT = "TIME_LIMIT"
    PRIORITY_CHANGED = "PRIORITY_CHANGED"
    SUSPENDED_BY_USER = "SUSPENDED_BY_USER"
    RESUMED_BY_USER = "RESUMED_BY_USER"
    CANCELLED_BY_USER = "CANCELLED_BY_USER"
    PRUNED = "PRUNED"
    COMPLETED = "COMPLETED"
    RESTORED = "RESTORED"
    CHECKPOINT_FAILED = "CHECKPOINT_FAILED"
    HALTED = "HALTED"
    HALT_TIMEOUT = "HALT_TIMEOUT"
    PROFILE_REFUSED = "PROFILE_REFUSED"
    BATCH_PINNED = "BATCH_PINNED"
    SIZE_SHOWS = "SIZE_SHOWS"
    REPORT_SET_ASIDE = "REPORT_SET_ASIDE"


AnyReason = Reason | PlanReason


def choices(*enums: type[StrEnum]) -> list[tuple[str, str]]:
    """Return the members as choices of a model field."""
    return [(member.value, member.value) for enum in enums for member in enum]


def reason_of(code: str) -> AnyReason:
    """Return the reason stored as `code`. Raises ValueError for any other text."""
    return PlanReason(code) if code in set(PlanReason) else Reason(code)


#: Column of a job whose change can be undone -> reason of the event that records the change and names the column.
UNDOABLE: dict[str, AnyReason] = {
    "min_slots": PlanReason.LIMIT_CHANGED,
    "priority": Reason.PRIORITY_CHANGED,
    "max_slots": PlanReason.LIMIT_CHANGED,
    "max_seconds": PlanReason.LIMIT_CHANGED,
}
