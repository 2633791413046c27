"""The actions that a job's state allows: buttons show the refusal in advance, and actions raise it.

A job's owner and administrators have the same rights. Other users cannot see the job: see `visible_jobs`.
"""

from enum import StrEnum

from core.errors import Conflict
from jobs.states import TERMINAL, WAITING, JobState

__all__ = ["BUTTONS", "Refusal", "Refused", "Verb", "refusal", "refusals_by_state"]


class Verb(StrEnum):
    SUSPEND = "suspend"
    RESUME = "resume"
    CANCEL = "cancel"
    #: Change the priority or the maximum of GPUs.
    CHANGE = "change"
    #: Change the minimum of GPUs, or the GPUs of a job that is not elastic.
    CHANGE_START = "change_start"
    #: Postpone the end of ranks that stay after others have exited.
    WAIT = "wait"
    #: Keep GPUs that it does not use.
    KEEP = "keep"


class Refusal(StrEnum):
    OVER = "over"
    CANCELLING = "cancelling"
    SUSPENDED = "suspended"
    NOT_SUSPENDED = "not_suspended"
    STARTED = "started"
    NOT_ELASTIC = "not_elastic"
    NOBODY_STAYS = "nobody_stays"
    NOT_IDLE = "not_idle"


#: Verbs with a button on a job's page.
BUTTONS = (Verb.SUSPEND, Verb.RESUME, Verb.CANCEL)
_WORDS = {Verb.CANCEL: "stop", Verb.CHANGE_START: "change"}
_SENTENCES = {
    Refusal.OVER: "The training is finished: there is nothing to {verb}. Clone it to train again.",
    Refusal.CANCELLING: "The training is already being stopped.",
    Refusal.SUSPENDED: "The training is already suspended.",
    Refusal.NOT_SUSPENDED: "Only a suspended training can be resumed.",
    Refusal.STARTED: "The training has started: suspend it before you change the GPUs that it starts with.",
    Refusal.NOT_ELASTIC: "The training is not elastic: it starts with all of its GPUs, and has no minimum.",
    Refusal.NOT_IDLE: "The training has not been warned of idle GPUs, or has kept them three times already.",
    Refusal.NOBODY_STAYS: "No process is still running after another has ended: there is nothing to {verb} for.",
}


class Refused(Conflict):
    """The job's state does not allow the action."""

    default_code = "stale_job"

    def __init__(self, verb: Verb, why: Refusal) -> None:
        super().__init__(_sentence(verb, why))
        self.why = why


def refusal(verb: Verb, state: str, after_stop: str = "") -> Refusal | None:
    """Return why a job in this state does not allow the verb; None if it does.

    after_stop: the state that a preempted job enters once it has stopped.
    """
    if state in TERMINAL:
        return Refusal.OVER
    if state == JobState.CANCELLING:
        return Refusal.CANCELLING
    if verb == Verb.RESUME and JobState.SUSPENDED not in (state, after_stop):
        return Refusal.NOT_SUSPENDED
    if verb == Verb.SUSPEND and state == JobState.SUSPENDED:
        return Refusal.SUSPENDED
    if verb == Verb.CHANGE_START and state not in WAITING:
        return Refusal.STARTED
    if verb == Verb.WAIT and state != JobState.RUNNING:
        return Refusal.NOBODY_STAYS
    if verb == Verb.KEEP and state != JobState.RUNNING:
        return Refusal.NOT_IDLE
    return None


def refusals_by_state() -> dict[str, dict[str, str]]:
    """Return state -> verb of a button -> sentence why not, or "" if possible."""
    return {state.value: {verb.value: _sentence(verb, refusal(verb, state)) for verb in BUTTONS} for state in JobState}


def _sentence(verb: Verb, why: Refusal | None) -> str:
    return "" if why is None else _SENTENCES[why].format(verb=_WORDS.get(verb, verb))
