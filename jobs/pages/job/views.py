"""The page of one job, and the actions of its buttons."""

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from core.charts import Band, Step, tide_figure
from core.edit_forms import ShownClash, reopened_data, show_conflict
from core.edits import EditConflict
from core.errors import UserError
from core.live import current_seqs
from core.pages import done, login_user, show_error
from core.parameters import parameters_as_text
from core.text import whole
from jobs import actions
from jobs.actions import JobChange
from jobs.actions.job_commands import changeable_values
from jobs.actions.notes import write_note
from jobs.control.checkpoints import is_resumable, stop_words
from jobs.control.gangs import gang_notice
from jobs.files.logs import first_written
from jobs.files.result_files import MAX_FILES, code_files, result_files, shown_code
from jobs.files.validation_runs import validation_of
from jobs.models import Checkpoint, Job
from jobs.pages.crumbs import LIST_CRUMB
from jobs.pages.job.curves import sources_of
from jobs.pages.job.labels import note_of, tags_of
from jobs.pages.job.parts import ViewedJob, page_context, registered_parts
from jobs.pages.queries import job_or_404
from jobs.pages.train.forms import ChangeForm, change_form, change_words
from jobs.pages.train.views import say_changed
from jobs.permissions import refusals_by_state
from jobs.queries.chosen_charts import chosen_charts
from jobs.queries.curves import curves_figure, thinned_metrics
from jobs.queries.disk_room import job_room
from jobs.queries.jobs import allocation_series, event_list, rank_list, undoable_changes
from jobs.queries.metrics import Curve, metric_points_as_json
from jobs.queries.provenance import ran
from jobs.queries.queue_position import place_text, with_places
from jobs.queries.serializers import AllocationOutput, EventOutput, JobOutput, RankOutput, as_json
from jobs.queries.shown_options import option_texts, options_shown
from jobs.topics import job_topic
from models_registry.queries import models, versions
from workers.topics import CLUSTER

__all__ = [
    "job_act",
    "job_again",
    "job_change",
    "job_curves",
    "job_detail",
    "job_detail_live",
    "job_live",
    "job_note",
    "job_part",
]

TIDE_COLUMNS = ("Time", "Training", "GPUs", "Why", "Pause (ms)")

#: Tabs of a job's page: fragment of the address, and label.
JOB_TABS = (
    ("overview", "Overview"),
    ("logs", "Logs"),
    ("ranks", "Ranks"),
    ("gpu-use", "GPUs"),
    ("speed", "Speed"),
    ("why-slow", "Why this speed"),
    ("events", "Events"),
    ("results", "Results & checkpoints"),
    ("notes", "Notes"),
    ("settings", "Parameters"),
    ("code", "Code"),
)

#: Action of a button on a job's page -> function, and message of success.
_ACTIONS: dict[str, tuple[Callable[..., Job], str]] = {
    "cancel": (actions.cancel, "The training is being stopped."),
    "suspend": (actions.suspend, "The training stops after the current step and releases its GPUs."),
    "resume": (actions.resume, "The training has been resumed and waits for GPUs."),
    "keep": (actions.keep_idle_gpus, "The training keeps its GPUs for an hour."),
    "wait": (actions.wait_for_ranks, "The processes may continue until the time in the notice."),
}

#: Choices for postponing the end of remaining processes: minutes, and label.
_WAITS = ((10, "10 minutes"), (60, "an hour"), (360, "6 hours"), (1440, "a day"), (10_080, "a week"))
_MAX_RANKS = 500
_MAX_CHECKPOINTS = 100
_MOST_NOTES = 2**31 - 1
_NO_STEP = "No step is done yet. Loss and accuracy appear after the first step."
_NO_STEP_OVER = "No step was done, so there is no loss or accuracy."
#: For scripts that are not elastic: a single process may have a session.
_NO_METRICS = "The output of the script contains no curve yet. The log shows what the script prints."
_NO_METRICS_OVER = "The output of the script contained no curve. The log shows what the script printed."
_NO_SPEED = "There are no measurements yet. The samples per second appear here."
_NO_SPEED_OVER = "No sample was measured, so there is no speed to show."


@require_safe
def job_detail(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show the job; `?file=` selects a file of its code instead of the entry point."""
    job = job_or_404(request.user, job_id)
    return _job_page(request, job, _change_form(job))


def _change_form(job: Job) -> ChangeForm:
    return change_form(changeable_values(job))


@require_POST
def job_note(request: HttpRequest, job_id: int) -> HttpResponse:
    """Save the note in `text`; `after` is the number of the version that the author has seen."""
    job = job_or_404(request.user, job_id)
    text, after = request.POST.get("text", ""), request.POST.get("after", "")
    try:
        write_note(job.pk, text, request.user.get_username(), after=whole(after, _MOST_NOTES) or 0)
    except UserError as error:
        note = note_of(job, text, error.message)
        return _job_page(request, job, _change_form(job), note=note, status=error.status)
    return redirect(f"{reverse('jobs:detail', args=[job.pk])}#notes")


@require_safe
def job_detail_live(request: HttpRequest, job_id: int) -> JsonResponse:
    """Return the job's state for a page whose live events have a gap or whose websocket fails."""
    return JsonResponse(job_live(job_or_404(request.user, job_id)))


@require_safe
def job_curves(request: HttpRequest, job_id: int) -> JsonResponse:
    """Return a new figure of the metrics, after the job has reported one that the page did not know."""
    job = job_or_404(request.user, job_id)
    return JsonResponse(_curves(job, thinned_metrics(job)))


@require_safe
def job_part(request: HttpRequest, job_id: int, part: str) -> HttpResponse:
    """Render a part of the page again, while it is visible."""
    job = job_or_404(request.user, job_id)
    if added := registered_parts().get(part):
        context = added.context(ViewedJob(job, login_user(request)))
        return render(request, added.template, {"job": job, **context})
    if part not in _PARTS:
        raise Http404
    return render(request, f"jobs/job/_{part}.html", {"job": job, **_PARTS[part](job, login_user(request))})


@require_POST
def job_change(request: HttpRequest, job_id: int) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    form = ChangeForm(request.POST)
    if form.is_valid():
        try:
            wanted, user = JobChange(**form.cleaned_data), request.user.get_username()
            events = actions.change_job(job.pk, wanted, user, form.seen())
        except EditConflict as conflict:
            return _conflict_page(request, job_or_404(request.user, job_id), conflict)
        except UserError as error:
            show_error(form, error)
        else:
            say_changed(request, job, events)
            return redirect("jobs:detail", job.pk)
    return _job_page(request, job, form)


def _conflict_page(request: HttpRequest, job: Job, conflict: EditConflict) -> HttpResponse:
    """Show the user's entries over the present values, and ask about fields that somebody else has changed, too."""
    form = ChangeForm(reopened_data(change_form(conflict.present), change_form(conflict.shown)))
    clashes = show_conflict(form, conflict, change_words, viewer=request.user.get_username())
    return _job_page(request, job, form, clashes=clashes, status=conflict.status)


@require_POST
def job_act(request: HttpRequest, job_id: int, action: str) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    act, sentence = _ACTIONS[action]
    minutes = request.POST.get("minutes", "")
    values = [int(minutes) if minutes.isdecimal() and len(minutes) < 9 else 0] if action == "wait" else []
    if done(request, lambda: act(job.pk, request.user.get_username(), *values)):
        messages.success(request, sentence)
    return redirect("jobs:detail", job.pk)


@require_POST
def job_again(request: HttpRequest, job_id: int) -> HttpResponse:
    """Run the training exactly again, and show the new one."""
    job = job_or_404(request.user, job_id)
    try:
        copy = actions.run_again_exactly(job, login_user(request))
    except UserError as error:
        sentences = [sentence for found in error.fields.values() for sentence in found]
        messages.error(request, " ".join(sentences or [error.message]))
        return redirect(f"{reverse('jobs:detail', args=[job.pk])}#code")
    messages.success(request, f"This training runs what training {job.pk} ran.")
    return redirect("jobs:detail", copy.pk)


def job_live(job: Job) -> dict[str, Any]:
    """Return a job's page as JSON: `state` and `append` have the shape of the live events of its topic."""
    live = _live_without_metrics(job)
    live["append"]["metrics"] = [
        point for name, curve in thinned_metrics(job).items() for point in metric_points_as_json(name, curve.samples)
    ]
    return live


def _live_without_metrics(job: Job) -> dict[str, Any]:
    # Sequence numbers first: events published meanwhile come again, and change nothing.
    topic = job_topic(job.pk)
    seqs = current_seqs([topic, CLUSTER])
    return {
        "seq": seqs[topic],
        "cluster_seq": seqs[CLUSTER],
        "state": as_json(JobOutput, job),
        "append": {
            "allocation": [{"job": job.pk, **as_json(AllocationOutput, point)} for point in allocation_series(job)],
            "metrics": [],
            "events": [as_json(EventOutput, event) for event in event_list(job)],
        },
        "log": first_written(job),
    }


def _job_page(
    request: HttpRequest,
    job: Job,
    form: ChangeForm,
    *,
    note: dict[str, Any] | None = None,
    clashes: Sequence[ShownClash] = (),
    status: int = 200,
) -> HttpResponse:
    live = _live_without_metrics(job)  # the page's figure contains the metrics
    view = ViewedJob(job, login_user(request))
    steps = [
        Step(datetime.fromisoformat(point["at"]), point["slots"], point["reason"]["text"], point["pause_ms"])
        for point in live["append"]["allocation"]
    ]
    context = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, (job.name, None)],
        "job": job,
        "page": {"live": live},
        "form": form,
        "clashes": clashes,
        "changes": undoable_changes(job),
        "tabs": JOB_TABS,
        "refusals": refusals_by_state(),
        "parameters": parameters_as_text(job.parameters),
        "arguments": shlex.join(job.arguments),
        "options_shown": options_shown(job),
        "option_texts": option_texts(job),
        "tide": tide_figure([Band(job.pk, job.name, steps)], job.max_slots, pool=False),
        **sources_of(job),
        **_ranks(job),
        **_place(job),
        "metrics": _curves(job, view.curves),
        "chosen_charts": chosen_charts(view.user, [job]),
        "models": job.model.model.name,
        "tide_columns": TIDE_COLUMNS,
        **_words_of_no_metrics(job),
        "files": code_files(job),
        "ran": ran(job),
        "shown": shown_code(job, request.GET.get("file", job.model.entry_point)),
        "newest": versions(job.model.model)[0].number,
        **page_context(view),
        **_facts(job, view.user),
        **tags_of(job, view.user),
        **(note or note_of(job)),
    }
    if not job.elastic:
        context["notice"] = gang_notice(job)
        context["waits"] = _WAITS
        context["stop_words"] = stop_words(
            job.instance_group, resumable=is_resumable(job), continues=job.model.declared.continues
        )
    return render(request, "jobs/job/page.html", context, status=status)


def _curves(job: Job, curves: dict[str, Curve]) -> dict[str, Any]:
    url = reverse("jobs:curves", args=[job.pk])
    return curves_figure(curves, url, job.samples_per_step, job.run.final_metrics, job=job.pk)


def _ranks(job: Job) -> dict[str, Any]:
    """Return the processes, running ones first, the newest first among each."""
    ranks = [
        as_json(RankOutput, rank) | {"started_at": datetime.fromtimestamp(rank.started_at, UTC)}
        for rank in reversed(rank_list(job))
    ]
    ranks.sort(key=lambda rank: rank["exit"] is not None)
    is_virtual = any(rank["gpu"] and rank["gpu"]["virtual"] for rank in ranks)
    return {"ranks": ranks[:_MAX_RANKS], "rank_count": len(ranks), "has_virtual_gpus": is_virtual}


def _facts(job: Job, user: User) -> dict[str, Any]:
    """Return whether the user may still see the model: the training keeps its copy of the code in any case."""
    return {"reads_model": models(user).filter(pk=job.model.model_id).exists()}


def _place(job: Job) -> dict[str, Any]:
    [placed] = with_places([job])
    return {"place": place_text(placed)}


def _results(job: Job) -> dict[str, Any]:
    back = f"{reverse('jobs:detail', args=[job.pk])}#results"
    rows = Checkpoint.objects.filter(job=job)[:_MAX_CHECKPOINTS]
    files = result_files(job, MAX_FILES + 1)
    most = MAX_FILES if len(files) > MAX_FILES else None
    room = job_room(job)
    return {"checkpoints": rows, "results": files[:MAX_FILES], "results_most": most, "back": back, "room": room}


#: Parts that the page fetches while they are visible; other apps add theirs (`jobs.pages.job.parts`).
_PARTS: dict[str, Callable[[Job, User], dict[str, Any]]] = {
    "facts": _facts,
    "failure": lambda job, _: {},
    "notice": lambda job, _: {"notice": gang_notice(job)},
    "place": lambda job, _: _place(job),
    "ran": lambda job, _: {"ran": ran(job)},
    "ranks": lambda job, _: _ranks(job),
    "results": lambda job, _: _results(job),
    "sources": lambda job, _: sources_of(job),
    "tags": lambda job, user: tags_of(job, user),
    "validations": lambda job, _: {},
}


def _words_of_no_metrics(job: Job) -> dict[str, str]:
    now, over = (_NO_STEP, _NO_STEP_OVER) if job.elastic else (_NO_METRICS, _NO_METRICS_OVER)
    if validation_of(job) is not None:
        now, over = _NO_SPEED, _NO_SPEED_OVER
    return {"no_metrics": now, "no_metrics_over": over}
