"""Effects of a submission, or of a change of a job: decided by the scheduler's own functions, never written."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from core.text import plural
from jobs.actions.job_commands import JobChange, check_change
from jobs.actions.requirements import missing_modules, missing_words
from jobs.actions.submission import Checked, Submission, check
from jobs.control.durations import NewTraining, lengths, with_lengths
from jobs.control.snapshots import snapshot
from jobs.control.time_limits import limit_end
from jobs.messages import text_of
from jobs.messages.spans import span_in_words, starts_in
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from jobs.states import ACTIVE, JobState
from jobs.words import ANOTHER_USERS_TRAINING, capitalized, gpus
from scheduling.forecast import Forecast, Span, forecast
from scheduling.plan import Explanation
from scheduling.preview import Preview, preview, with_changes, with_job
from scheduling.snapshot import JobView, Snapshot

__all__ = ["preview_change", "preview_checked", "preview_submission"]

#: Of more, only the number is said.
_MAX_OTHERS = 20
_MAX_NAMED = 3
_OVER_ITS_LIMIT = {
    "start_text": "Resumed, it may hold GPUs for as long again.",
    "end_text": "It stops at once and is held back: it has held GPUs for longer than that.",
}
#: Of a training that has been submitted.
_NOTHING_MISSING: Mapping[str, Any] = {"missing": [], "missing_text": ""}


def preview_submission(submission: Submission, user: User) -> dict[str, Any]:
    """Predict what a submission would do now. Raises InvalidSubmission like `submit`."""
    return preview_checked(check(submission, user), user)


def preview_checked(checked: Checked, user: User) -> dict[str, Any]:
    """Predict what a submission without mistakes would do now."""
    now = timezone.now()
    without = snapshot(now)
    view = _view(checked, without, now)
    parameters = {**checked.model.parameters, **checked.given.parameters}
    new = NewTraining(checked.model.model_id, checked.dataset.dataset_id if checked.dataset else None, parameters)
    lacks = missing_modules(checked.code, checked.model.entry_point, checked.given.requirements)
    answer = _answer(without, with_job(without, view), view.id, {view.id: new}, user, now)
    return answer | {"missing": lacks, "missing_text": missing_words(lacks)}


def preview_change(job: Job, wanted: JobChange, user: User) -> dict[str, Any]:
    """Predict what a change of its priority or limits would do now. Raises like `change_job`."""
    changes = check_change(job, wanted)
    now = timezone.now()
    without = snapshot(now)
    if job.state not in ACTIVE or all(view.id != job.pk for view in without.jobs):
        return _not_now(job)
    ends_at = None
    if "max_seconds" in changes:
        ends_at = limit_end(job, limit := changes.pop("max_seconds"))
        changes |= {"lasts": limit, "ends_at": ends_at and ends_at.timestamp()}
    answer = _answer(without, with_changes(without, job.pk, **changes), job.pk, {}, user, now)
    return answer | _OVER_ITS_LIMIT if ends_at is not None and ends_at <= now else answer


def _view(checked: Checked, without: Snapshot, now: datetime) -> JobView:
    """Return the job as `snapshots` would read it: the newest of all."""
    return JobView(
        id=max((job.id for job in without.jobs), default=0) + 1,
        name=checked.name,
        group=checked.group.name,
        state="PENDING",
        priority=checked.given.priority or checked.group.default_priority,
        submitted_at=now.timestamp(),
        min_slots=checked.given.min_slots,
        max_slots=checked.given.max_slots,
        elastic=checked.elastic,
        owner=checked.owner.pk,
        lasts=checked.given.max_seconds,
        one_host=checked.given.on_one_host,
    )


def _answer(
    without: Snapshot, with_it: Snapshot, job: int, new: Mapping[int, NewTraining], user: User, now: datetime
) -> dict[str, Any]:
    """The difference that a change of the snapshot makes. new: what the job is, where it is not submitted yet."""
    known = lengths(new, now)
    seen = preview(with_lengths(without, known, now), with_lengths(with_it, known, now), job)
    others = _others(seen, user)
    times = forecast(seen.decision, job, {number: length.work for number, length in known.items()})
    told_by = known[job].earlier if job in known else None
    return {
        "slots": len(seen.line.slots),
        "target_slots": seen.line.target,
        "before_slots": seen.before,
        "reason": _reason(seen.line.reason),
        "then": _reason(seen.then) if seen.then else None,
        "others": others[:_MAX_OTHERS],
        "others_text": _others_text(others),
        "start": _span(times.start),
        "start_text": _start_text(seen, times),
        "end": _span(times.end),
        "end_text": _end_text(times, told_by),
        **_NOTHING_MISSING,
    }


def _not_now(job: Job) -> dict[str, Any]:
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
        **_NOTHING_MISSING,
    }


def _others(seen: Preview, user: User) -> list[dict[str, Any]]:
    """Return the jobs that get more or fewer, those that lose most first; by name only what the viewer may see."""
    numbers = [effect.job for effect in seen.others]
    names = dict(visible_jobs(user).filter(pk__in=numbers).values_list("pk", "name"))
    return [
        {
            "job": effect.job,
            "name": names.get(effect.job, ANOTHER_USERS_TRAINING),
            "visible": effect.job in names,
            "slots": effect.before,
            "target_slots": effect.after,
        }
        for effect in sorted(seen.others, key=lambda effect: effect.after - effect.before)
    ]


def _reason(reason: Explanation) -> dict[str, Any]:
    return {"code": str(reason.code), "params": reason.params, "text": text_of(reason.params)}


def _span(span: Span | None) -> dict[str, Any] | None:
    return None if span is None else {"earliest_seconds": span.earliest, "latest_seconds": span.latest}


# --- Sentences ------------------------------------------------------------------------------------------------------


def _others_text(changed: Sequence[dict[str, Any]]) -> str:
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


def _start_text(seen: Preview, times: Forecast) -> str:
    if seen.before or seen.line.slots:
        return "It trains on while this changes." if seen.before else "It starts at once."
    if seen.line.target:
        return "It starts within moments, as soon as others have made the step that they are at."
    return starts_in(times.start)


def _end_text(times: Forecast, told_by: int | None) -> str:
    """`told_by`: earlier trainings that say how long it takes, 0 for its own progress, None where nothing does."""
    if told_by is None:
        return "How long it takes is not known: no training of this model on this dataset has come to its end yet."
    if times.end is None:
        return "When it ends cannot be said, because it is not known when it starts."
    source = "by its progress so far"
    if told_by:
        earlier = plural(told_by, "the last training", "the last {count} trainings")
        source = f"by {earlier} of this model on this dataset"
    return f"It ends {span_in_words(times.end)}, {source}, if nobody else comes."
