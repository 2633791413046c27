"""Estimate of a training's remaining time from its own steps. Times are Unix seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidepool.own_checkpoints import SPEED

from jobs.files.validation_runs import validation_of
from jobs.models import AllocationPoint, Job, MetricPoint
from jobs.states import JobState
from jobs.words import gpus

__all__ = ["LEAST_STEPS", "Change", "Eta", "StepTime", "eta", "time_left"]

#: Fewest steps for an estimate: the first ones wait for data, compilers and other ranks.
LEAST_STEPS = 10
#: Fewest seconds between the first and the last step for an estimate.
_LEAST_SECONDS = 2.0
#: Number of parts whose speeds give the range.
_PARTS = 4
#: Highest number of steps that are read: older ones say little about the present speed.
_MOST_STEPS = 200
_MOST_CHANGES = 20


@dataclass(frozen=True)
class StepTime:
    step: int
    at: float


@dataclass(frozen=True)
class Change:
    """A change of size: from `at` on the training had `slots`."""

    at: float
    slots: int


@dataclass(frozen=True)
class Eta:
    #: Seconds from the newest step on; None if unknown.
    earliest: float | None
    latest: float | None
    #: Basis of the estimate, or why there is none.
    text: str


def time_left(job: Job) -> Eta:
    if job.state != JobState.RUNNING:
        return Eta(None, None, "")
    points = AllocationPoint.objects.filter(job=job).order_by("-at", "-id").values_list("at", "slots")[:_MOST_CHANGES]
    changes = [Change(at.timestamp(), slots) for at, slots in reversed(points)]
    steps = _steps(job)
    if validation_of(job) is not None:
        return eta(steps, changes, job.run.progress or 0.0, counted="progress reports")
    return eta(steps, changes, job.run.progress)


def _steps(job: Job) -> list[StepTime]:
    """Return the newest steps with a loss; with another metric, if there is none; where a library notes its speed more
    often than its loss, those."""
    names = sorted(job.run.final_metrics, key=lambda name: (name != "loss", name))
    steps: list[StepTime] = []
    for name in dict.fromkeys([*names[:1], *(name for name in names if name == SPEED)]):
        if len(steps) < LEAST_STEPS:
            newest = MetricPoint.objects.filter(job=job, name=name, step__lte=job.run.step).order_by("-step")
            found = reversed(newest.values_list("step", "at")[:_MOST_STEPS])
            steps = max(steps, [StepTime(step, at.timestamp()) for step, at in found], key=len)
    return steps


def eta(steps: Sequence[StepTime], changes: Sequence[Change], progress: float | None, *, counted: str = "steps") -> Eta:
    """Estimate the remaining time from steps at the present size; else from those before the last change of size.

    After a change of size the speed is assumed to lie between unchanged and proportional to the GPUs. Pure.

    steps, changes: the newest ones, in order of time.
    counted: name of the steps in the text.
    """
    if progress is None:
        return Eta(None, None, "no estimate: the script reports no progress")
    if not changes or not changes[-1].slots:
        return Eta(None, None, "no estimate while the training does not run")
    now = changes[-1]
    too_few = Eta(None, None, _too_few(now.slots, counted, is_first=len(changes) < 2 or not changes[-2].slots))
    if progress <= 0:
        return too_few
    here = _rates([step for step in steps if step.at > now.at])
    if here is not None:
        return _range(steps, progress, *here, f"at its speed on {gpus(now.slots)}")
    before = next((change for change in reversed(changes[:-1]) if change.slots), None)
    since = before.at if before else now.at
    former = _rates([step for step in steps if since < step.at <= now.at])
    if before is None or former is None:
        return too_few
    in_proportion = now.slots / before.slots
    text = f"from its speed on {gpus(before.slots)}, until {gpus(now.slots)} have done {LEAST_STEPS} steps"
    return _range(steps, progress, former[0] * min(1.0, in_proportion), former[1] * max(1.0, in_proportion), text)


def _too_few(slots: int, counted: str, *, is_first: bool) -> str:
    """Return why there is no estimate: too few steps, or too short a time, at the present size."""
    where = "" if is_first else f" on {gpus(slots)}"
    return f"no estimate before {LEAST_STEPS} {counted} and {_LEAST_SECONDS:.0f} s{where}"


def _range(steps: Sequence[StepTime], progress: float, slowest: float, fastest: float, text: str) -> Eta:
    left = steps[-1].step * (1 - progress) / progress
    return Eta(left / fastest, left / slowest, text)


def _rates(steps: Sequence[StepTime]) -> tuple[float, float] | None:
    """Return (slowest, fastest) steps per second among the parts of these steps; None if there are too few."""
    if len(steps) < LEAST_STEPS or steps[-1].at - steps[0].at < _LEAST_SECONDS:
        return None
    cuts = [round(part * (len(steps) - 1) / _PARTS) for part in range(_PARTS + 1)]
    spans = [(steps[start], steps[end]) for start, end in pairwise(cuts)]
    rates = [(end.step - start.step) / (end.at - start.at) for start, end in spans if end.at > start.at]
    rates = [rate for rate in rates if rate > 0]
    return (min(rates), max(rates)) if rates else None
