"""What a submission, or a change of a job, would do: read, decided by the scheduler's own functions, never written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from jobs.actions.change import JobChange, check_change
from jobs.actions.submission import Checked, Submission, check
from jobs.control.snapshots import snapshot
from jobs.insight import preview_messages as words
from jobs.insight.durations import NewTraining, lengths
from jobs.messages import ANOTHER_USERS_TRAINING, text_of
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from jobs.states import ACTIVE
from scheduling.forecast import Span, forecast
from scheduling.plan import Explanation
from scheduling.preview import Effect, Preview, preview, with_changes, with_job
from scheduling.snapshot import JobView, Snapshot

__all__ = ["preview_change", "preview_submission"]

#: Of more, only the number is said.
_MAX_OTHERS = 20


@dataclass(frozen=True)
class _Asked:
    """A preview's question: the snapshot without and with it, about which job, and how long that one takes."""

    without: Snapshot
    with_it: Snapshot
    job: int
    new: dict[int, NewTraining]


def preview_submission(submission: Submission, user: User) -> dict[str, Any]:
    """What would happen if it were submitted now. Raises InvalidSubmission like `submit`."""
    checked = check(submission, user)
    now = timezone.now()
    without = snapshot(now)
    view = _view(checked, without, now)
    parameters = {**checked.model.parameters, **submission.parameters}
    new = NewTraining(checked.model.model_id, checked.dataset.dataset_id, parameters)
    return _answer(_Asked(without, with_job(without, view), view.id, {view.id: new}), user, now)


def preview_change(job: Job, wanted: JobChange, user: User) -> dict[str, Any]:
    """What would happen if its priority or limits were changed now. Raises like `change_job`."""
    changes = check_change(job, wanted)
    now = timezone.now()
    without = snapshot(now)
    if job.state not in ACTIVE or all(view.id != job.pk for view in without.jobs):
        return words.not_now(job)
    with_it = with_changes(without, job.pk, **changes)
    return _answer(_Asked(without, with_it, job.pk, {}), user, now)


def _view(checked: Checked, without: Snapshot, now: datetime) -> JobView:
    """As `snapshots` would read the job: the newest of all."""
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
    )


def _answer(asked: _Asked, user: User, now: datetime) -> dict[str, Any]:
    seen = preview(asked.without, asked.with_it, asked.job)
    others = _others(seen, user)
    known = lengths(asked.new, now)
    times = forecast(seen.decision, asked.job, {job: known[job].work for job in known})
    told_by = known[asked.job].earlier if asked.job in known else None
    return {
        "slots": len(seen.line.slots),
        "target_slots": seen.line.target,
        "before_slots": seen.before,
        "reason": _reason(seen.line.reason),
        "then": _reason(seen.then) if seen.then else None,
        "others": others[:_MAX_OTHERS],
        "others_text": words.others(others),
        "start": _span(times.start),
        "start_text": words.start(seen, times),
        "end": _span(times.end),
        "end_text": words.end(times, told_by),
    }


def _others(seen: Preview, user: User) -> list[dict[str, Any]]:
    """Who gets more or fewer; by name only what the viewer may see."""
    numbers = [effect.job for effect in seen.others]
    names = dict(visible_jobs(user).filter(pk__in=numbers).values_list("pk", "name"))
    return [_other(effect, names) for effect in sorted(seen.others, key=lambda effect: effect.after - effect.before)]


def _other(effect: Effect, names: dict[int, str]) -> dict[str, Any]:
    return {
        "job": effect.job,
        "name": names.get(effect.job, ANOTHER_USERS_TRAINING),
        "visible": effect.job in names,
        "slots": effect.before,
        "target_slots": effect.after,
    }


def _reason(reason: Explanation) -> dict[str, Any]:
    return {"code": str(reason.code), "params": reason.params, "text": text_of(reason.params)}


def _span(span: Span | None) -> dict[str, Any] | None:
    return None if span is None else {"earliest_seconds": span.earliest, "latest_seconds": span.latest}
