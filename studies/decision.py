"""Decisions about a study: what became of a trial, how many to submit, when to pause and when to finish.

Pure: facts in, verdicts out. `studies.control` reads the facts and carries the verdicts out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.text import plural
from core.time import duration
from jobs.states import JobState, Reason

__all__ = [
    "ERRORS_IN_A_ROW",
    "SCRIPT_ERRORS",
    "Ending",
    "Limits",
    "Progress",
    "ending_of",
    "places",
    "why_finished",
    "why_paused",
]

#: Number of consecutive errors of the script, before any success, after which a study pauses.
ERRORS_IN_A_ROW = 3
#: Reasons of a failed training that are errors of its script; all others are losses of ranks or hosts.
SCRIPT_ERRORS = frozenset({Reason.EXIT_NONZERO, Reason.OUT_OF_MEMORY, Reason.ENVIRONMENT_FAILED})


@dataclass(frozen=True)
class Ending:
    """The outcome of a trial whose training is over."""

    #: Value of the metric, a finite number; None: the trial failed, or was pruned.
    value: float | None = None
    #: Sentence why the trial failed; "": it is complete.
    why: str = ""
    is_script_error: bool = False
    #: The training succeeded, but has no value of the metric.
    lacks_metric: bool = False
    #: The same values are to be tried once more, because neither the script nor a user was at fault.
    is_repeated: bool = False


@dataclass(frozen=True)
class Limits:
    """Limits of a study; None: no limit."""

    trials: int | None
    seconds: float | None
    gpu_seconds: float | None


@dataclass(frozen=True)
class Progress:
    """State of a study's trials."""

    #: Number of trials that count towards the limit: all but those that repeat a lost one.
    counted: int
    #: Number of trials that are queued or whose training is not over.
    open: int
    seconds: float
    gpu_seconds: float
    #: Sentence why there are no more values to try, such as that the grid is used up; "": there are.
    exhausted: str = ""


def ending_of(
    state: str, *, metric: str, value: float | None, error: str, is_script_error: bool, is_repeat: bool
) -> Ending:
    """Judge a trial by the terminal state of its training.

    value: final value of the metric. error: why the training failed or was stopped. is_repeat: the trial repeats
    another one, and is not repeated itself.
    """
    if state == JobState.SUCCEEDED and value is None:
        why = f"The training ended without a value of {metric}."
        return Ending(why=why, is_script_error=True, lacks_metric=True)
    if state == JobState.SUCCEEDED and not math.isfinite(value or 0.0):
        return Ending(why=f"The last value of {metric} is not a number.")
    if state == JobState.SUCCEEDED:
        return Ending(value=value)
    is_lost = state == JobState.FAILED and not is_script_error
    return Ending(why=error, is_script_error=is_script_error, is_repeated=is_lost and not is_repeat)


def places(limits: Limits, progress: Progress, at_once: int) -> int:
    """Return how many more trials are submitted now."""
    left = at_once - progress.open
    if limits.trials is not None:
        left = min(left, limits.trials - progress.counted)
    return max(0, left)


def why_finished(limits: Limits, progress: Progress) -> str:
    """Return the sentence why the study is finished, without the best value; "": it goes on."""
    if limits.seconds is not None and progress.seconds >= limits.seconds:
        return f"Its time limit of {duration(limits.seconds)} is over."
    if limits.gpu_seconds is not None and progress.gpu_seconds >= limits.gpu_seconds:
        return f"It has used its {limits.gpu_seconds / 3600:g} GPU-hours."
    if progress.open:
        return ""
    if progress.exhausted:
        return progress.exhausted
    if limits.trials is not None and progress.counted >= limits.trials:
        return plural(progress.counted, "Its {count} trial is over.", "All {count} trials are over.")
    return ""


def why_paused(*, metric: str, lacks_metric: bool, reported: Sequence[str], errors: Sequence[str]) -> str:
    """Return the sentence why a study without any success pauses; "": it goes on.

    lacks_metric: the newest training succeeded without a value of the metric. reported: names of the metrics that it
    has. errors: sentences of the newest trials, all of which failed with an error of the script; the newest last.
    """
    if lacks_metric:
        names = f"Reported were {', '.join(reported)}." if reported else "The script reported no metric at all."
        return f"No trial reports {metric}. {names}"
    if len(errors) >= ERRORS_IN_A_ROW:
        return f"{len(errors)} trials in a row failed with an error of the script: {errors[-1]}"
    return ""
