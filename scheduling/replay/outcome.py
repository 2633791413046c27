"""Results of a replay: figures of the recorded window and of each play of it, and the error of the replay.

A replay is believed by playing the same rules first. Its errors: of the average completion time, of the GPUs in use
(the area between both curves over the recorded one), and of each training's completion time (the median). Completion
is counted of trainings that came to their own end within the window, GPUs only within it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated, NamedTuple

import numpy as np

from scheduling.replay.history import History, PlayResult, RecordedJob
from scheduling.replay.world import Pool
from scheduling.snapshot import JobView

__all__ = [
    "BARS",
    "MOST",
    "Errors",
    "Figures",
    "TrainingOutcome",
    "errors_of",
    "held_by_job",
    "outcomes",
    "played",
    "recorded",
    "recorded_outcome",
    "summed",
]

#: Errors up to these limits are good: of the average, of the GPUs in use, and the median per training.
BARS = (0.05, 0.10, 0.10)
#: Errors beyond this limit prevent any comparison.
MOST = 0.15

#: (time, number of GPUs held from then on).
Steps = Sequence[tuple[float, int]]


@dataclass(frozen=True)
class Figures:
    """Seconds and GPU-hours."""

    jobs: Annotated[int, "Trainings that came to their own end in the window, and here."]
    unfinished: Annotated[int, "Of those in the window, not over when the play ended."]
    average: Annotated[float, "Seconds from submission to end."]
    median: float
    p99: float
    longest_wait: Annotated[float, "Seconds from submission to the first GPU."]
    gpu_hours: Annotated[float, "Held within the window."]
    idle_gpu_hours: Annotated[float | None, "null: of an instance group, which has no GPUs of its own."]
    worst_slowdown: Annotated[float, "Completion time over that with all GPUs that it asks for."]


class Errors(NamedTuple):
    average: float
    gpus: float
    per_job: float

    @property
    def is_good(self) -> bool:
        return all(error <= bar for error, bar in zip(self, BARS, strict=True))

    @property
    def is_too_large(self) -> bool:
        return max(self) > MOST


class TrainingOutcome(NamedTuple):
    """Outcome of one training in one replay."""

    job: int
    #: Time of the start; None: the training did not start.
    started_at: float | None
    ended_at: float | None
    seconds: float | None


def recorded(history: History, alone: Mapping[int, float], group: str | None = None) -> Figures:
    """group: only its trainings."""
    outcomes = [recorded_outcome(job) for job in history.jobs]
    return _figures(history, outcomes, [job.held for job in history.jobs], alone, group)


def played(history: History, play: PlayResult, group: str | None = None) -> Figures:
    return _figures(history, outcomes(play), held_by_job(play).values(), play.alone, group)


def outcomes(play: PlayResult) -> list[TrainingOutcome]:
    return [_outcome(job.view, job.started_at, job.ended_at) for job in play.jobs]


def recorded_outcome(job: RecordedJob) -> TrainingOutcome:
    return _outcome(job.view, job.view.started_at, job.ended_at)


def _outcome(view: JobView, started_at: float | None, ended_at: float | None) -> TrainingOutcome:
    return TrainingOutcome(view.id, started_at, ended_at, None if ended_at is None else ended_at - view.submitted_at)


def errors_of(history: History, play: PlayResult) -> Errors:
    """Return the errors of a play of the same rules."""
    pairs = [
        (one.seconds, mine.seconds)
        for job, mine in zip(history.jobs, outcomes(play), strict=True)
        if job.is_counted and (one := recorded_outcome(job)).seconds and mine.seconds is not None
    ]
    true, simulated = [one for one, _ in pairs if one], [one for _, one in pairs]
    in_use = summed(job.held for job in history.jobs), summed(held_by_job(play).values())
    window = history.start, history.end
    area = _area(in_use[0], *window)
    return Errors(
        average=abs(fmean(simulated) / fmean(true) - 1) if true else 0.0,
        gpus=_area_between(*in_use, *window) / area if area else 0.0,
        per_job=median(abs(mine / one - 1) for one, mine in zip(true, simulated, strict=True)) if true else 0.0,
    )


def held_by_job(play: PlayResult) -> dict[int, list[tuple[float, int]]]:
    """Job -> GPUs that it held, over time."""
    found: dict[int, list[tuple[float, int]]] = {job.id: [] for job in play.jobs}
    for at, job, slots in play.held:
        found[job].append((at, slots))
    return found


def _figures(
    history: History,
    found: Sequence[TrainingOutcome],
    held: Iterable[Steps],
    alone: Mapping[int, float],
    group: str | None,
) -> Figures:
    own = [
        (job, one, steps)
        for job, one, steps in zip(history.jobs, found, held, strict=True)
        if group in (None, job.view.group)
    ]
    counted = [one for job, one, _ in own if job.is_counted]
    times = [one.seconds for one in counted if one.seconds is not None]
    submitted = {job.view.id: job.view.submitted_at for job in history.jobs}
    waits = [one.started_at - submitted[one.job] for one in counted if one.started_at is not None]
    slowdowns = [one.seconds / alone[one.job] for one in counted if one.seconds is not None and one.job in alone]
    used = _area(summed(steps for _, _, steps in own), history.start, history.end)
    return Figures(
        jobs=len(times),
        unfinished=len(counted) - len(times),
        average=fmean(times) if times else 0.0,
        median=median(times) if times else 0.0,
        p99=float(np.percentile(times, 99)) if times else 0.0,
        longest_wait=max(waits, default=0.0),
        gpu_hours=used / 3600,
        idle_gpu_hours=None if group is not None else max(0.0, _capacity(history) - used) / 3600,
        worst_slowdown=max(slowdowns, default=0.0),
    )


def summed(parts: Iterable[Steps]) -> list[tuple[float, int]]:
    """Return the sum of these series."""
    moves: dict[float, int] = {}
    for part in parts:
        before = 0
        for at, slots in part:
            moves[at] = moves.get(at, 0) + slots - before
            before = slots
    height, found = 0, []
    for at in sorted(moves):
        height += moves[at]
        found.append((at, height))
    return found


def _capacity(history: History) -> float:
    """GPU-seconds of the pool."""
    pools = [(at, len(change.slots)) for at, change in history.changes if isinstance(change, Pool)]
    return _area([(history.start, len(history.slots)), *pools], history.start, history.end)


def _area(steps: Steps, start: float, end: float) -> float:
    return _area_between(steps, (), start, end)


def _area_between(one: Steps, other: Steps, start: float, end: float) -> float:
    """Return the GPU-seconds between both curves, as an absolute value."""
    moments = sorted({start, end, *(at for steps in (one, other) for at, _ in steps if start < at < end)})
    edges = np.array(moments)
    difference = np.abs(_heights(one, edges[:-1]) - _heights(other, edges[:-1]))
    return float(np.sum(difference * np.diff(edges)))


def _heights(steps: Steps, moments: np.ndarray) -> np.ndarray:
    """Return the curve's value at each of these times; the last of simultaneous steps counts."""
    if not steps:
        return np.zeros(len(moments))
    places = np.searchsorted([at for at, _ in steps], moments, side="right")
    return np.array([0, *(slots for _, slots in steps)])[places]
