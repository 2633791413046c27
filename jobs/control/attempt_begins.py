"""Judgement whether a new attempt of a plain script continued or began anew, by the first step that it prints.

Folders tell little: many scripts continue from files that only they know. `JobRun.positions` is `{"told", "streams"}`:
the newest attempt that was judged, and an entry for each stream of rank 0 and for what a library notes. An entry has
`attempt`, the newest attempt that printed there; `first`, the lowest step and epoch at which an attempt began; and
`last`, the step and epoch that the newest attempt has reached. Without `first`, the stream tells nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidepool.protocol import ObservedStep

from jobs.control.transition import Why, record
from jobs.messages import message
from jobs.models import Job
from jobs.states import Reason

__all__ = ["tell_begin", "without_logs"]


def tell_begin(job: Job, steps: Sequence[ObservedStep]) -> dict[str, Any]:
    """Return the job's positions after these steps. Record once how the attempt began, if that can be told."""
    streams = dict(job.run.positions.get("streams", {}))
    told = job.run.positions.get("told", 0)
    for step in steps:
        if not _tells(job, step, steps):
            continue
        before, here = streams.get(step.where), [step.step, step.epoch]
        if (
            before is not None
            and before["attempt"] != job.run.attempt
            and "first" in before
            and told != job.run.attempt
        ):
            _tell(job, before, here)
            told = job.run.attempt
        streams[step.where] = _entry(job.run.attempt, streams, step)
    return {"told": told, "streams": streams}


def without_logs(job: Job) -> dict[str, Any]:
    """Return the positions for logs that are read again by another pattern, which may count otherwise."""
    if job.run.attempt == 1:
        return {}
    streams = {
        where: entry if entry["kind"] == "library" else {"kind": "log", "attempt": job.run.attempt, "last": [0, 0]}
        for where, entry in job.run.positions.get("streams", {}).items()
    }
    return {**job.run.positions, "streams": streams}


def _tells(job: Job, step: ObservedStep, steps: Sequence[ObservedStep]) -> bool:
    """Return whether the step says where the script is: a bar shows 0 before it shows where the script continues."""
    kinds = {source["kind"] for source in job.run.curve_sources.values()} | {each.kind for each in steps}
    best = "library" if "library" in kinds else "log"
    return step.kind == best and step.counted and bool(step.step or step.epoch or step.metrics)


def _entry(attempt: int, streams: Mapping[str, Any], step: ObservedStep) -> dict[str, Any]:
    """Return the stream's entry after the step."""
    entry, here = streams.get(step.where), [step.step, step.epoch]
    if entry is None:
        # A stream that former attempts left empty has no beginning to compare with.
        is_comparable = all(other["attempt"] == attempt for other in streams.values())
        first = {"first": here} if is_comparable else {}
        return {"kind": step.kind, "attempt": attempt, **first, "last": here}
    if entry["attempt"] == attempt:
        return {**entry, "last": _each(max, entry["last"], here)}
    first = {"first": _each(min, entry["first"], here)} if "first" in entry else {}
    return {**entry, "attempt": attempt, **first, "last": here}


def _each(choose: Callable[[tuple[int, int]], int], one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [choose(pair) for pair in zip(one, other, strict=True)]


def _tell(job: Job, before: Mapping[str, Any], here: Sequence[int]) -> None:
    """Record whether an attempt that begins at this step and epoch continued."""
    (step, epoch), (first_step, first_epoch), (last_step, last_epoch) = here, before["first"], before["last"]
    # Many counters of steps begin anew in each epoch.
    by_epoch = epoch > first_epoch or (step == epoch and step <= first_step)
    params = message(
        "continued" if epoch > first_epoch or step > first_step else "began_anew",
        unit="epoch" if by_epoch else "step",
        first=epoch if by_epoch else step,
        reached=last_epoch if by_epoch else last_step,
    )
    record(job, Why(Reason.RESTORED, params, "executor"))
