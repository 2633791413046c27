"""What cannot be asked of a job in a state, and why: pages show it before somebody tries."""

from __future__ import annotations

from jobs.states import TERMINAL, JobState

__all__ = ["refusal", "refusals_by_state"]

_VERBS = {"suspend": "suspend", "resume": "resume", "cancel": "stop"}


def refusals_by_state() -> dict[str, dict[str, str]]:
    """State -> action -> why not, or "" where it is possible."""
    return {state.value: {action: refusal(action, state) for action in _VERBS} for state in JobState}


def refusal(action: str, state: JobState) -> str:
    """What `jobs.actions.owner` would say; one exception: a suspended job that still stops may be let go on."""
    if state in TERMINAL:
        return f"It is over: there is nothing to {_VERBS[action]}. Clone it to train again."
    if state == JobState.CANCELLING:
        return "It is being stopped for good."
    if action == "resume" and state != JobState.SUSPENDED:
        return "Only a suspended training can be resumed."
    if action == "suspend" and state == JobState.SUSPENDED:
        return "It is suspended already."
    return ""
