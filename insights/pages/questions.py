"""Questions before many trainings are stopped or changed at once, with the effects that the scheduler predicts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from django.contrib.auth.models import User
from django.db.models import Max
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from core.errors import UserError, field_error
from core.pages import login_user
from core.text import plural, whole
from insights.change_effects import effects_of_ending, effects_of_priority
from insights.job_numbers import job_numbers
from jobs.actions.bulk import MAX_JOBS
from jobs.models import Checkpoint, Job
from jobs.permissions import Verb, refusal
from jobs.queries.job_columns import joined_columns
from jobs.queries.job_list import JobFilter, list_keys
from jobs.queries.jobs import visible_jobs
from jobs.words import trainings

__all__ = ["last_checkpoints", "priority_question_of", "stop_question", "stop_question_of"]

#: Number of trainings that a question names one by one.
_MOST_NAMED = 6


@dataclass(frozen=True)
class Question:
    """Texts of the dialog (`ask.js`) before many jobs are stopped or changed."""

    title: str
    lost: str
    hint: str
    yes: str
    #: Ids of the jobs that a yes stops or changes.
    jobs: list[int]


@require_safe
def stop_question_of(request: HttpRequest) -> JsonResponse:
    """Return the question before jobs are stopped: those of `?jobs=1,2,3`, or all that fit the filter.

    A yes stops the jobs listed in the question, and none submitted since.
    """
    return _answer(lambda: _stop_question(login_user(request), request))


def _stop_question(user: User, request: HttpRequest) -> Question:
    jobs = _selected_jobs(request, user)
    question = stop_question(jobs, last_checkpoints(jobs))
    if question.jobs:
        then = f"The scheduler would then act as follows: {_uncapitalized(effects_of_ending(question.jobs, user))}"
        question = replace(question, hint=" ".join(part for part in (question.hint, then) if part))
    return question


@require_safe
def priority_question_of(request: HttpRequest) -> JsonResponse:
    """Return the question before those jobs get the priority `?priority=`."""
    return _answer(lambda: _priority_question(login_user(request), request))


def _answer(question: Callable[[], Question]) -> JsonResponse:
    try:
        return JsonResponse(asdict(question()))
    except UserError as error:
        return JsonResponse({"error": error.message, "code": error.code, "fields": error.fields}, status=error.status)


def _priority_question(user: User, request: HttpRequest) -> Question:
    priority = whole(request.GET.get("priority", ""))
    if priority is None or not 1 <= priority <= 10_000:
        raise field_error("priority", "Enter a priority from 1 to 10,000.")
    jobs = _selected_jobs(request, user)
    changed = [job for job in jobs if refusal(Verb.CHANGE, job.state) is None and job.priority != priority]
    title = f"Set the priority of {trainings(len(changed))} to {priority}?"
    same = sum(job.priority == priority and refusal(Verb.CHANGE, job.state) is None for job in jobs)
    left = len(jobs) - len(changed) - same
    hints = [
        plural(same, "{count} training already has this priority.", "{count} trainings already have this priority.")
        if same
        else "",
        plural(left, "{count} training is over.", "{count} trainings are over.") if left else "",
    ]
    hint = " ".join(text for text in hints if text)
    if not changed:
        return Question(title, f"There is nothing to change. {hint}", "", "", [])
    now = sorted({job.priority for job in changed})
    before = f"{now[0]}" if len(now) == 1 else f"{now[0]} to {now[-1]}"
    numbers = [job.pk for job in changed]
    effects = _uncapitalized(effects_of_priority(numbers, priority, user))
    text = f"Current priority: {before}. Effects: {effects}"
    return Question(title, text, hint, f"Set the priority of {trainings(len(changed))}", numbers)


def _uncapitalized(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _selected_jobs(request: HttpRequest, user: User) -> list[Job]:
    """Return the jobs of `?jobs=` that the user may see; with `?matching=1`, all that fit the filter."""
    if "matching" not in request.GET:
        return list(visible_jobs(user).filter(pk__in=job_numbers(request.GET.get("jobs", ""))).order_by("-pk"))
    numbers = list(list_keys(user, JobFilter(joined_columns(request.GET))).values_list("pk", flat=True)[: MAX_JOBS + 1])
    if len(numbers) > MAX_JOBS:
        sentence = f"More than {MAX_JOBS:,} trainings match: narrow the filter."
        raise field_error("matching", sentence)
    return list(visible_jobs(user).filter(pk__in=numbers).order_by("-pk"))


def last_checkpoints(jobs: Iterable[Job]) -> dict[int, int]:
    """Return job -> step of its newest usable checkpoint."""
    steps = Checkpoint.objects.filter(job__in=list(jobs), problem="").values("job").annotate(last=Max("step"))
    return {row["job"]: row["last"] for row in steps.order_by()}


def stop_question(jobs: Sequence[Job], checkpoints: Mapping[int, int]) -> Question:
    """Return the question before these jobs are stopped; jobs that are over or being stopped are only counted."""
    stopped = [job for job in jobs if refusal(Verb.CANCEL, job.state) is None]
    what = trainings(len(stopped))
    named = [_loss_by_stopping(job, checkpoints.get(job.pk, 0)) for job in stopped[:_MOST_NAMED]]
    if len(stopped) > _MOST_NAMED:
        named.append(f"and {len(stopped) - _MOST_NAMED} more")
    if not stopped:
        return Question(f"Stop {what}?", "All chosen trainings have already ended.", "", "", [])
    ends = plural(len(stopped), "{count} training ends", "{count} trainings end")
    lost = f"{ends} for good and cannot be continued: {'; '.join(named)}. Logs, metrics and checkpoints stay."
    left = len(jobs) - len(stopped)
    hint = plural(left, "{count} chosen training has", "{count} chosen trainings have")
    numbers = [job.pk for job in stopped]
    return Question(f"Stop {what}?", lost, f"{hint} already ended." if left else "", f"Stop {what}", numbers)


def _loss_by_stopping(job: Job, checkpoint: int) -> str:
    if not job.run.step:
        return f"“{job.name}” before its first step"
    lost = max(0, job.run.step - checkpoint)
    if not lost:
        return f"“{job.name}” at step {job.run.step} (no step is lost)"
    since = "since its last checkpoint" if checkpoint else "because it has no checkpoint"
    return f"“{job.name}” at step {job.run.step} ({plural(lost, '{count} step', '{count} steps')} lost {since})"
