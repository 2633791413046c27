"""Effects of a submission or of a change of a job, computed by the scheduler's own functions and never written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from core.text import plural
from jobs.actions.job_commands import JobChange, check_change
from jobs.actions.requirements import environment_words, missing_modules, missing_words
from jobs.actions.submission import Checked, Submission, check
from jobs.control.durations import NewTraining, lengths, with_lengths
from jobs.control.snapshots import host_shares, snapshot
from jobs.control.time_limits import limit_end
from jobs.messages import message, text_of
from jobs.messages.spans import span_in_words, starts_in
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from jobs.states import ACTIVE, JobState
from jobs.words import ANOTHER_USERS_TRAINING, capitalized, gpus
from models_registry.models import RegisteredModelVersion
from scheduling.forecast import Forecast, Span, forecast
from scheduling.plan import Explanation
from scheduling.preview import Preview, preview, with_changes, with_job
from scheduling.snapshot import JobView, Snapshot

__all__ = ["preview_change", "preview_checked", "preview_submission"]

#: Highest number of affected trainings that are returned, and that the sentence names.
_MAX_OTHERS = 20
_MAX_NAMED = 3
_OVER_ITS_LIMIT = {
    "start_text": "After a resume, the time limit starts again from zero.",
    "end_text": "The training is suspended at once, because it has held GPUs for longer than that.",
}
#: Fields about modules, requirements and processes for a training that has been submitted.
_NOTHING_MISSING: Mapping[str, Any] = {
    "missing": [],
    "missing_text": "",
    "skipped": [],
    "skipped_text": "",
    "environment_text": "",
    "processes_text": "",
}


def preview_submission(submission: Submission, user: User) -> dict[str, Any]:
    """Predict the effects of a submission now. Raises InvalidSubmission like `submit`."""
    return preview_checked(check(submission, user), user)


def preview_checked(checked: Checked, user: User) -> dict[str, Any]:
    """Predict the effects of a valid submission now."""
    now = timezone.now()
    without = snapshot(now)
    view = _view(checked, without, now)
    parameters = {**checked.model.parameters, **checked.given.parameters}
    new = NewTraining(checked.model.model_id, checked.dataset.dataset_id if checked.dataset else None, parameters)
    lacks = missing_modules(checked.code, checked.model.entry_point, checked.given)
    if view.wish is not None:
        without = replace(without, shares=host_shares())
    answer = _answer(without, with_job(without, view), view.id, {view.id: new}, user, now)
    skipped = text_of(message("requirements_skipped", lines=checked.skipped)) if checked.skipped else ""
    return answer | {
        "missing": lacks,
        "missing_text": missing_words(lacks),
        "skipped": checked.skipped,
        "skipped_text": skipped,
        "environment_text": capitalized(environment_words(checked.given)),
        "processes_text": _processes_text(checked),
    }


def preview_change(job: Job, wanted: JobChange, user: User) -> dict[str, Any]:
    """Predict the effects of a change of the job's priority or limits now. Raises like `change_job`."""
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
    """Return the job as `snapshots` would read it, with an id above all others."""
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
        equal_hosts=checked.given.on_equal_hosts,
        code=checked.model.digest,
        bundle=checked.given.bundle,
        wish=checked.given.wish,
        one_kind=checked.given.is_bitwise,
    )


def _answer(
    without: Snapshot, with_it: Snapshot, job: int, new: Mapping[int, NewTraining], user: User, now: datetime
) -> dict[str, Any]:
    """Return the differences between two snapshots. new: the job by its id, if it is not submitted yet."""
    known = lengths(new, now)
    result = preview(with_lengths(without, known, now), with_lengths(with_it, known, now), job)
    others = _others(result, user)
    times = forecast(result.decision, job, {number: length.work for number, length in known.items()})
    example_count = known[job].earlier if job in known else None
    return {
        "slots": len(result.line.slots),
        "target_slots": result.line.target,
        "before_slots": result.before,
        "reason": _reason(result.line.reason),
        "then": _reason(result.then) if result.then else None,
        "others": others[:_MAX_OTHERS],
        "others_text": _others_text(others),
        "start": _span(times.start),
        "start_text": _start_text(result, times),
        "end": _span(times.end),
        "end_text": _end_text(times, example_count),
        **_NOTHING_MISSING,
    }


def _processes_text(checked: Checked) -> str:
    """Return how the processes of a script without a session are divided among GPUs and hosts, as a sentence."""
    count = checked.given.max_slots
    if checked.elastic or count == 1:
        return ""
    if checked.engine == RegisteredModelVersion.Engine.SINGLE:
        return f"One process has all {count} GPUs, on one host."
    is_equal = checked.given.on_equal_hosts
    hosts = "all on one host" if checked.given.on_one_host else "as many on each host" if is_equal else "on few hosts"
    return f"{count} processes with 1 GPU each, {hosts}."


def _not_now(job: Job) -> dict[str, Any]:
    """Return the answer for a job about which the scheduler decides nothing at the moment."""
    waits = "continues" if job.state in (JobState.SUSPENDED, JobState.PREEMPTING) else "can be scheduled again"
    return {
        "slots": 0,
        "target_slots": 0,
        "before_slots": 0,
        "reason": None,
        "then": None,
        "others": [],
        "others_text": "No other training gets more or fewer GPUs now.",
        "start": None,
        "start_text": f"The training holds no GPUs now: the change takes effect once it {waits}.",
        "end": None,
        "end_text": "",
        **_NOTHING_MISSING,
    }


def _others(result: Preview, user: User) -> list[dict[str, Any]]:
    """Return the jobs that get more or fewer GPUs, those that lose most first; named if the viewer may see them."""
    numbers = [effect.job for effect in result.others]
    names = dict(visible_jobs(user).filter(pk__in=numbers).values_list("pk", "name"))
    return [
        {
            "job": effect.job,
            "name": names.get(effect.job, ANOTHER_USERS_TRAINING),
            "visible": effect.job in names,
            "slots": effect.before,
            "target_slots": effect.after,
        }
        for effect in sorted(result.others, key=lambda effect: effect.after - effect.before)
    ]


def _reason(reason: Explanation) -> dict[str, Any]:
    return {"code": str(reason.code), "params": reason.params, "text": text_of(reason.params)}


def _span(span: Span | None) -> dict[str, Any] | None:
    return None if span is None else {"earliest_seconds": span.earliest, "latest_seconds": span.latest}


# --- Sentences ------------------------------------------------------------------------------------------------------


def _others_text(changed: Sequence[dict[str, Any]]) -> str:
    if not changed:
        return "No other training gets more or fewer GPUs."
    named = [_other(one) for one in changed[:_MAX_NAMED]]
    rest = len(changed) - len(named)
    if rest:
        named.append(plural(rest, "{count} more training changes", "{count} more trainings change"))
    sentence = "; ".join(named)
    if not changed[0]["visible"]:  # do not capitalize a name that a user chose
        sentence = capitalized(sentence)
    return f"{sentence}."


def _other(one: dict[str, Any]) -> str:
    if not one["target_slots"]:
        return f"{one['name']} stops for now, releases {gpus(one['slots'])}, and continues later"
    if not one["slots"]:
        return f"{one['name']} starts, on {gpus(one['target_slots'])}"
    verb = "shrinks" if one["target_slots"] < one["slots"] else "grows"
    return f"{one['name']} {verb} from {one['slots']} to {gpus(one['target_slots'])}"


def _start_text(result: Preview, times: Forecast) -> str:
    if result.before or result.line.slots:
        return "The training continues during the change." if result.before else "The training starts at once."
    if result.line.target:
        return "The training starts as soon as others have finished their current step."
    return starts_in(times.start)


def _end_text(times: Forecast, example_count: int | None) -> str:
    """Return the sentence about the end.

    example_count: number of earlier trainings that the duration rests on; 0: its own progress; None: unknown.
    """
    if example_count is None:
        return "The duration is not known: no training of this model on this dataset has finished yet."
    if times.end is None:
        return "The end cannot be predicted, because the start is not known."
    source = "estimated from its progress so far"
    if example_count:
        earlier = plural(example_count, "the last training", "the last {count} trainings")
        source = f"estimated from {earlier} of this model on this dataset"
    return f"The training ends {span_in_words(times.end)}, {source}, unless other trainings are submitted."
