"""Sentences of previews: who else gets more or fewer GPUs, when it starts, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.messages import capitalized, gpus, plural
from jobs.models import Job
from jobs.states import JobState
from scheduling.forecast import Forecast, Span
from scheduling.preview import Preview

__all__ = ["end", "not_now", "others", "start"]

_MAX_NAMED = 3
#: A span whose ends lie closer together is one moment.
_CLOSE = 1.15


def others(changed: Sequence[dict[str, Any]]) -> str:
    """`changed` begins with those that lose most."""
    if not changed:
        return "Nobody else gets more or fewer GPUs."
    named = [_other(one) for one in changed[:_MAX_NAMED]]
    rest = len(changed) - len(named)
    if rest:
        named.append(plural(rest, "{count} more training changes", "{count} more trainings change"))
    sentence = "; ".join(named)
    if not changed[0]["visible"]:  # a name stays as it was given, whatever its first letter
        sentence = capitalized(sentence)
    return f"{sentence}."


def _other(one: dict[str, Any]) -> str:
    if not one["target_slots"]:
        return f"{one['name']} stops for now and gives back {gpus(one['slots'])}, to continue later"
    if not one["slots"]:
        return f"{one['name']} starts, on {gpus(one['target_slots'])}"
    verb = "shrinks" if one["target_slots"] < one["slots"] else "grows"
    return f"{one['name']} {verb} from {one['slots']} to {gpus(one['target_slots'])}"


def start(seen: Preview, times: Forecast) -> str:
    if seen.before or seen.line.slots:
        return "It trains on while this changes." if seen.before else "It starts at once."
    if seen.line.target:
        return "It starts within moments, as soon as others have made the step that they are at."
    if times.start is None:
        return "Nobody can say when it starts: how long the trainings before it take is not known yet."
    return f"It starts {_in(times.start)}, if nobody else comes."


def end(times: Forecast, told_by: int | None) -> str:
    """`told_by`: earlier trainings that say how long it takes, 0 for its own progress, None where nothing does."""
    if told_by is None:
        return "How long it takes is not known: no training of this model on this dataset has come to its end yet."
    if times.end is None:
        return "When it ends cannot be said, because it is not known when it starts."
    source = "by its progress so far"
    if told_by:
        earlier = plural(told_by, "the last training", "the last {count} trainings")
        source = f"by {earlier} of this model on this dataset"
    return f"It ends {_in(times.end)}, {source}, if nobody else comes."


def not_now(job: Job) -> dict[str, Any]:
    """The answer for a job that the scheduler decides nothing about at the moment."""
    waits = "continues" if job.state in (JobState.SUSPENDED, JobState.PREEMPTING) else "is decided about again"
    return {
        "slots": 0,
        "target_slots": 0,
        "before_slots": 0,
        "reason": None,
        "then": None,
        "others": [],
        "others_text": "Nobody else gets more or fewer GPUs now.",
        "start": None,
        "start_text": f"It holds no GPUs now: the change counts once it {waits}.",
        "end": None,
        "end_text": "",
    }


def _in(span: Span) -> str:
    if span.latest is None:
        return f"in {_duration(span.earliest)} at the earliest"
    if span.latest <= span.earliest * _CLOSE or _duration(span.earliest) == _duration(span.latest):
        return f"in about {_duration(span.latest)}"
    first, unit = _duration(span.earliest).split()
    between = first if _duration(span.latest).endswith(unit) else _duration(span.earliest)
    return f"in {between} to {_duration(span.latest)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} days"
