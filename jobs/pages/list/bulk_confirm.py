"""The question before many jobs are stopped: what is lost, and for how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Max

from jobs.models import Checkpoint, Job
from jobs.permissions import Verb, refusal

__all__ = ["Question", "last_checkpoints", "stop_question"]

_MOST_NAMED = 6


@dataclass(frozen=True)
class Question:
    """The texts of the dialog (`ask.js`)."""

    title: str
    lost: str
    hint: str
    yes: str
    #: The jobs that it is about.
    jobs: list[int]


def last_checkpoints(jobs: Iterable[Job]) -> dict[int, int]:
    """Return job -> the last step that it could continue from."""
    steps = Checkpoint.objects.filter(job__in=list(jobs), problem="").values("job").annotate(last=Max("step"))
    return {row["job"]: row["last"] for row in steps.order_by()}


def stop_question(jobs: Sequence[Job], checkpoints: Mapping[int, int]) -> Question:
    """Describe what stopping these jobs means. Those that are over or being stopped are left out and counted."""
    stopped = [job for job in jobs if refusal(Verb.CANCEL, job.state) is None]
    what = _trainings(len(stopped))
    named = [_loss(job, checkpoints.get(job.pk, 0)) for job in stopped[:_MOST_NAMED]]
    if len(stopped) > _MOST_NAMED:
        named.append(f"and {len(stopped) - _MOST_NAMED} more")
    ends = "ends for good and cannot" if len(stopped) == 1 else "end for good and cannot"
    lost = f"{what.capitalize()} {ends} be continued: {'; '.join(named)}. Logs, metrics and checkpoints stay."
    if not stopped:
        return Question(f"Stop {what}?", "All of those chosen are over already: there is nothing to stop.", "", "", [])
    left = len(jobs) - len(stopped)
    hint = f"{_trainings(left).capitalize()} of those chosen {'is' if left == 1 else 'are'} over already."
    return Question(f"Stop {what}?", lost, hint if left else "", f"Stop {what}", [job.pk for job in stopped])


def _loss(job: Job, checkpoint: int) -> str:
    if not job.run.step:
        return f"“{job.name}” before its first step"
    lost = max(0, job.run.step - checkpoint)
    if not lost:
        return f"“{job.name}” at step {job.run.step} (no step is lost)"
    since = "since its last checkpoint" if checkpoint else "because it has no checkpoint"
    return f"“{job.name}” at step {job.run.step} ({lost} {'step' if lost == 1 else 'steps'} lost {since})"


def _trainings(count: int) -> str:
    return "1 training" if count == 1 else f"{count} trainings"
