"""Running a replay: a simulation of a period under the rules as they were, one under other rules, and the result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from time import process_time
from typing import Any, NamedTuple

import psutil

from core.charts import Step
from core.process import fitting_alone
from insights.cluster_trace import MAX_BANDS, MAX_STEPS, Change, means, summed
from jobs.gpu_weights import weights_of
from replay.history import read_history
from replay.models import Replay
from scheduling.replay import outcome
from scheduling.replay.history import Alternative, History, PlayResult, Scaling, play
from scheduling.replay.notes import Notes
from scheduling.replay.outcome import TrainingOutcome
from scheduling.schedule import CycleResult

__all__ = ["JOB_COLUMNS", "LimitExceeded", "ReplayResult", "alternative_of", "run_replay"]

#: Columns of a row of `Replay.jobs`. Times are in seconds; `_low` and `_high` are a range if unmeasured trainings were
#: simulated with two assumptions. None: the training did not start or finish.
JOB_COLUMNS = (
    "job", "counted", "measured", "recorded_seconds", "recorded_wait", "same_low", "same_high", "same_wait",
    "other_low", "other_high", "other_wait",
)  # fmt: skip
_MAX_CPU_SECONDS = 120.0
_MAX_BYTES = 1024**3
#: Maximum number of reasons stored for each simulation, and of changes of size stored in all.
_MAX_NOTES, _MAX_CHANGES = 20_000, 100_000
#: Share of the progress after the rows have been read.
_READING = 0.1

#: Job -> [(Unix seconds, GPUs held from then on)].
_Held = Mapping[int, Sequence[tuple[float, int]]]


class ReplayResult(NamedTuple):
    """Columns of a finished `Replay`."""

    result: dict[str, Any]
    jobs: list[list[Any]]
    moments: dict[str, Any]


class LimitExceeded(Exception):
    """The replay exceeds its limit of time or memory. The message is a sentence for the user."""


def run_replay(replay: Replay, now: datetime, report_progress: Callable[[float], None]) -> ReplayResult:
    """Run the replay. `report_progress` is called frequently with a number from 0 to 1, and may raise."""
    with fitting_alone():
        return _replayed(replay, now, report_progress)


def _replayed(replay: Replay, now: datetime, report_progress: Callable[[float], None]) -> ReplayResult:
    # Memory is what the replay adds to that of what else this process does.
    began, others = process_time(), psutil.Process().memory_info().rss
    history = read_history(replay.start, replay.end, now)
    report_progress(_READING)
    alternatives = [Alternative()]
    if replay.alternative:
        alternatives.append(alternative_of(replay.alternative))
    scalings = _scalings(history)
    plays: list[list[PlayResult]] = []
    notes = [Notes(history.end, _MAX_NOTES) for _ in alternatives]
    for number, alternative in enumerate(alternatives):
        plays.append([])
        for place, scaling in enumerate(scalings):
            done = number * len(scalings) + place
            tick = _tick_function(history, done, len(alternatives) * len(scalings), report_progress, began, others)
            on_plan = _discard if place else notes[number].tell
            plays[-1].append(play(history, alternative, scaling, clock=process_time, tick=tick, on_plan=on_plan))
    result = _result(history, plays) | {"cpu_seconds": round(process_time() - began, 2)}
    rows = list(_rows(history, [[outcome.outcomes(one) for one in same] for same in plays]))
    return ReplayResult(result, rows, _moments(history, [same[0] for same in plays], notes))


def alternative_of(stored: Mapping[str, Any]) -> Alternative:
    """Return the changes of a replay, whose rules of groups are stored with the names and values of `InstanceGroup`."""
    return Alternative(
        **{**stored, "groups": {name: _rules(given) for name, given in stored.get("groups", {}).items()}}
    )


def _rules(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules as fields of `GroupView`."""
    if "gpu_weights" not in given:
        return dict(given)
    return {**given, "gpu_weights": tuple(weights_of(given["gpu_weights"]).items())}


def _discard(at: float, result: CycleResult | None) -> None:
    """Ignore the plan: only the first of two scalings stores reasons."""


def _scalings(history: History) -> list[Scaling]:
    """Return the scalings to simulate: both if an elastic training was never measured."""
    unknown = any(job.known is None and job.view.elastic and job.view.max_slots > 1 for job in history.jobs)
    return ["linear", "none"] if unknown else ["linear"]


def _tick_function(
    history: History, done: int, count: int, report_progress: Callable[[float], None], began: float, others: int
) -> Callable[[float], None]:
    process = psutil.Process()
    span, events = history.end - history.start, 0

    def tick(now: float) -> None:
        nonlocal events
        events += 1
        if events % 100 != 1:
            return
        if process_time() - began > _MAX_CPU_SECONDS:
            raise LimitExceeded(
                f"The replay needs more than {_MAX_CPU_SECONDS:.0f} s of CPU time: choose a shorter period."
            )
        if process.memory_info().rss - others > _MAX_BYTES:
            raise LimitExceeded("The replay needs over 1 GiB of memory: choose a shorter period.")
        part = min(1.0, max(0.0, (now - history.start) / span))
        report_progress(_READING + (1 - _READING) * (done + part) / count)

    return tick


def _result(history: History, plays: Sequence[Sequence[PlayResult]]) -> dict[str, Any]:
    alone = plays[0][0].alone
    errors = [outcome.errors_of(history, one) for one in plays[0]]
    worst = outcome.Errors(*(max(values) for values in zip(*errors, strict=True)))
    jobs = history.jobs
    held: list[_Held] = [{job.view.id: job.held for job in jobs}, *(outcome.held_by_job(same[0]) for same in plays)]
    shown = _largest(held[0], history)
    names = ("recorded", "same", "other")
    return {
        "trainings": len(jobs),
        "counted": sum(job.is_counted for job in jobs),
        "unfinished": sum(job.outcome == "unfinished" for job in jobs),
        "withdrawn": sum(job.outcome == "withdrawn" for job in jobs),
        "unmeasured": sum(job.known is None for job in jobs),
        "gpus": history.gpus,
        "recorded": asdict(outcome.recorded(history, alone)),
        "same": [asdict(outcome.played(history, one)) for one in plays[0]],
        "other": [asdict(outcome.played(history, one)) for same in plays[1:] for one in same],
        "errors": worst._asdict(),
        "is_good": worst.is_good,
        "is_too_large": worst.is_too_large,
        "groups": {group: _group_figures(history, plays, group) for group in sorted({job.view.group for job in jobs})},
        "series": {name: _series(one, shown, history) for name, one in zip(names, held, strict=False)},
    }


def _group_figures(history: History, plays: Sequence[Sequence[PlayResult]], group: str) -> dict[str, Any]:
    return {
        "counted": sum(job.is_counted for job in history.jobs if job.view.group == group),
        "recorded": asdict(outcome.recorded(history, plays[0][0].alone, group)),
        "same": [asdict(outcome.played(history, one, group)) for one in plays[0]],
        "other": [asdict(outcome.played(history, one, group)) for same in plays[1:] for one in same],
    }


def _moments(history: History, plays: Sequence[PlayResult], notes: Sequence[Notes]) -> dict[str, Any]:
    """Return the column `Replay.moments`; {} if there were too many changes."""
    held = [[(at, job.view.id, slots) for job in history.jobs for at, slots in job.held], *(one.held for one in plays)]
    within = [sorted(change for change in changes if change[0] <= history.end) for changes in held]
    if any(one.is_full for one in notes) or sum(map(len, within)) > _MAX_CHANGES:
        return {}
    recorded, *replayed = ([[round(at, 3), job, slots] for at, job, slots in changes] for changes in within)
    parts = zip(("same", "other"), replayed, notes, strict=False)
    return {
        "recorded": {"held": recorded},
        **{
            name: {"held": changes, "notes": [[round(note.at, 3), *note[1:]] for note in name_notes.noted]}
            for name, changes, name_notes in parts
        },
    }


def _rows(history: History, found: Sequence[Sequence[Sequence[TrainingOutcome]]]) -> Iterable[list[Any]]:
    for place, job in enumerate(history.jobs):
        recorded, submitted_at = outcome.recorded_outcome(job), job.view.submitted_at
        row = [job.view.id, job.is_counted, job.known is not None, _rounded(recorded.seconds)]
        row.append(_rounded(None if recorded.started_at is None else recorded.started_at - submitted_at))
        for same in found:
            outcomes = [outcomes[place] for outcomes in same]
            ended = [one.seconds for one in outcomes]
            known = [one for one in ended if one is not None]
            complete = len(known) == len(ended)
            row += [_rounded(min(known)), _rounded(max(known))] if complete else [None, None]
            started = outcomes[0].started_at
            row.append(_rounded(None if started is None else started - submitted_at))
        yield row + [None] * (len(JOB_COLUMNS) - len(row))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _largest(held: _Held, history: History) -> list[int]:
    """Return the trainings with the most GPU time, which get a band of their own."""
    areas = {
        job: sum(
            slots * max(0.0, min(after, history.end) - max(at, history.start))
            for (at, slots), (after, _) in pairwise([*steps, (history.end, 0)])
        )
        for job, steps in held.items()
    }
    return sorted(sorted(areas, key=lambda job: (-areas[job], job))[: MAX_BANDS - 1])


def _series(held: _Held, shown: Sequence[int], history: History) -> list[dict[str, Any]]:
    """Return the bands of a chart. Job 0 stands for all others. Steps are [Unix seconds, GPUs], averaged if many."""
    parts = {
        job: [Change(job, datetime.fromtimestamp(at, UTC), slots) for at, slots in held.get(job, ())] for job in shown
    }
    rest = [
        [Change(job, datetime.fromtimestamp(at, UTC), slots) for at, slots in steps]
        for job, steps in held.items()
        if job not in parts
    ]
    if rest:
        parts[0] = summed(rest)
    count = sum(len(steps) for steps in parts.values())
    start, end = (datetime.fromtimestamp(at, UTC) for at in (history.start, history.end))
    bands = []
    for job, steps in parts.items():
        if count > MAX_STEPS:
            drawn = [(step.at, step.slots) for step in means([Step(step.at, step.slots) for step in steps], start, end)]
        else:
            drawn = [(step.at, float(step.slots)) for step in steps]
        bands.append({"job": job, "steps": [[round(at.timestamp(), 3), slots] for at, slots in drawn]})
    return bands
