"""WMLA's words for the states of jobs.

Notebooks stop polling at the first word that they do not know. So a living job has only the words that all of them
know: SUBMITTED (in Cloud Pak PENDING_CRD_SCHEDULER) while it waits for GPUs, SUBMITTED while it starts, then RUNNING
for as long as it holds GPUs.
"""

from __future__ import annotations

from jobs.states import JobState
from wmla.identities import Dialect

__all__ = ["FINAL_WORDS", "KNOWN_WORDS", "LIVING_WORDS", "state_word", "states_behind"]

_SUBMITTED, _PENDING, _RUNNING = "SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING"
LIVING_WORDS = (_PENDING, _SUBMITTED, _RUNNING)
FINAL_WORDS = ("FINISHED", "KILLED", "ERROR", "FAILED")
#: Words that its clients ask for; some of them no training ever has here.
KNOWN_WORDS = (
    "NEW", "SUBMITTED", "PENDING_JOB_SCHEDULER", "PENDING_CRD_SCHEDULER", "WAITING", "LAUNCHING", "RUNNING",
    "RECOVERING", "UNKNOWN", *FINAL_WORDS,
)  # fmt: skip

_WAITING = frozenset({JobState.PENDING, JobState.SUSPENDED})
_WORDS = {
    JobState.STARTING: _SUBMITTED,
    JobState.RUNNING: _RUNNING,
    JobState.PREEMPTING: _RUNNING,
    JobState.CANCELLING: _RUNNING,
    JobState.SUCCEEDED: "FINISHED",
    JobState.CANCELLED: "KILLED",
}


def state_word(state: JobState | str, dialect: str) -> str:
    """Return the state's word in this dialect. Scripts for Cloud Pak wait for ERROR, those for on-prem for FAILED."""
    state = JobState(state)
    is_on_prem = dialect == Dialect.ON_PREM
    if state in _WAITING:
        return _SUBMITTED if is_on_prem else _PENDING
    if state == JobState.FAILED:
        return "FAILED" if is_on_prem else "ERROR"
    return _WORDS[state]


def states_behind(word: str) -> frozenset[JobState]:
    """Return the states that a word of any dialect means; none for an unknown word."""
    dialects = (Dialect.ON_PREM, Dialect.CLOUD_PAK)
    return frozenset(state for state in JobState for dialect in dialects if state_word(state, dialect) == word)
