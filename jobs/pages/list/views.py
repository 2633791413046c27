"""The list of jobs, its filters, and bulk actions."""

import json
import math
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from core.errors import UserError
from core.keyset import KeysetPage
from core.live import current_seqs
from core.pages import PAGE_SIZE, Undo, done, login_user, or_404, say
from core.roles import is_cluster_admin
from core.templatetags.tidepool import figure
from core.time import duration
from core.visibility import readable
from datasets.models import Dataset
from jobs.actions.saved_filters import choose_columns, forget_filter, save_filter
from jobs.models import InstanceGroup, Job, SavedFilter
from jobs.pages.crumbs import LIST_CRUMB
from jobs.queries.curves import main_metrics
from jobs.queries.job_columns import FACTS, OF_ONE, USUAL, columns_of, extra_columns, joined_columns, names_of, value_of
from jobs.queries.job_groups import JobGroup, grouping_labels, job_groups
from jobs.queries.job_list import ACTIVE, FINISHED, JobFilter, job_page_of, jobs_topic, state_counts
from jobs.queries.jobs import known_tags
from jobs.queries.queue_position import with_places
from jobs.states import TERMINAL, JobState
from jobs.words import gpus
from models_registry.models import RegisteredModel
from workers.topics import CLUSTER

__all__ = [
    "choose_job_columns",
    "forget_job_filter",
    "job_counts",
    "job_list",
    "job_list_rows",
    "save_job_filter",
]

STATES = [("", "All"), (ACTIVE, "Active"), (FINISHED, "Finished"), *[(state, state.capitalize()) for state in JobState]]
#: Number of metrics that the list shows of a training that is over.
_METRICS_OF_ENDED = 2
PERIODS = [
    ("", "Any time"),
    ("1h", "Last hour"),
    ("24h", "Last 24 hours"),
    ("7d", "Last 7 days"),
    ("30d", "Last 30 days"),
]
SORTS = [
    ("newest", "Newest first"),
    ("oldest", "Oldest first"),
    ("ended", "Last ended first"),
    ("name", "Name, from A"),
    ("-name", "Name, from Z"),
    ("priority", "Highest priority first"),
    ("-priority", "Lowest priority first"),
]
#: Column -> orders for the first and the second click on its head.
_HEADS = {"name": ("name", "-name"), "priority": ("priority", "-priority"), "submitted": ("newest", "oldest")}
_LABELS = {
    "state": "State",
    "within": "Submitted",
    "sort": "Order",
    "search": "Name or number",
    "submitted_after": "Submitted from",
    "submitted_before": "Submitted before",
    "tag": "Tag",
    "owner": "Owner",
    "model": "Model",
    "dataset": "Dataset",
    "instance_group": "Instance group",
    "columns": "Columns",
    "group": "Grouping",
}
#: Fields under "More filters".
_MORE = ("tag", "owner", "model", "dataset", "instance_group", "submitted_after", "submitted_before")
_MOST_SUGGESTIONS = 500


@require_safe
def job_list(request: HttpRequest) -> HttpResponse:
    return _list_page(request)


@require_POST
def save_job_filter(request: HttpRequest) -> HttpResponse:
    """Save the filter in the query string under a name."""
    name = request.POST.get("name", "")
    try:
        saved = save_filter(login_user(request), name, request.GET.dict())
    except UserError as error:
        return _list_page(request, refused=(name, error.message))
    say(request, f"The filter “{saved.name}” has been saved.")
    return redirect(f"{reverse('jobs:list')}?{saved.parameters}")


@require_POST
def forget_job_filter(request: HttpRequest, filter_id: int) -> HttpResponse:
    user = login_user(request)
    gone = or_404(SavedFilter.objects.filter(owner=user, pk=filter_id).first())
    forget_filter(user, gone.pk)
    undo = Undo(f"{reverse('jobs:save-filter')}?{gone.parameters}", {"name": gone.name})
    say(request, f"The filter “{gone.name}” has been deleted.", undo=undo)
    return redirect(f"{reverse('jobs:list')}?{gone.parameters}")


@require_POST
def choose_job_columns(request: HttpRequest) -> HttpResponse:
    """Store the chosen columns for the user, and show the list with the filter in the query string."""
    chosen = ",".join(request.POST.getlist("columns"))
    given = {name: text for name, text in request.GET.dict().items() if name != "columns"}
    if done(request, lambda: choose_columns(login_user(request), chosen)) and chosen:
        given["columns"] = chosen
    return redirect(f"{reverse('jobs:list')}?{urlencode(given)}" if given else reverse("jobs:list"))


def _list_page(request: HttpRequest, refused: tuple[str, str] = ("", "")) -> HttpResponse:
    """Render the list. `refused`: the name of a filter that cannot be saved, and the reason."""
    user = login_user(request)
    # Sequence numbers first: events published meanwhile come again, and change nothing.
    topics = [CLUSTER, jobs_topic(user)]
    seqs = current_seqs(topics)
    context = {
        "section": "jobs",
        "crumbs": [(LIST_CRUMB[0], None)],
        "states": STATES,
        "periods": PERIODS,
        "sorts": SORTS,
        "groupings": [
            ("", "Not grouped"),
            *((kind, f"By {label.lower()}") for kind, label in grouping_labels(user).items()),
        ],
        "names": _names(user, joined_columns(request.GET)),
        "saved": SavedFilter.objects.filter(owner=user).order_by("name"),
        "typed_name": refused[0],
        "name_problem": refused[1],
        "live": {"topics": [{"name": topic, "seq": seqs[topic]} for topic in topics]},
        **_results(request, user),
    }
    is_wrong = context["problems"] or refused[1]
    return render(request, "jobs/list/page.html", context, status=400 if is_wrong else 200)


@require_safe
def job_list_rows(request: HttpRequest) -> HttpResponse:
    """Render only the rows, with which the page replaces its own after a change."""
    context = _results(request, login_user(request))
    return render(request, "jobs/list/_rows.html", context, status=400 if context["problems"] else 200)


@require_safe
def job_counts(request: HttpRequest) -> HttpResponse:
    """Render the states with the number of matching jobs in each. The page fetches them after it is loaded."""
    given = joined_columns(request.GET)
    try:
        wanted = JobFilter(given)
    except UserError:
        return HttpResponse(status=204)  # the page shows the error
    counts = state_counts(login_user(request), wanted)
    over = sum(count for state, count in counts.items() if state in TERMINAL)
    whole = sum(counts.values())
    rows = [("", "All", whole), (ACTIVE, "Active", whole - over), (FINISHED, "Finished", over)]
    now = given.get("state", "")
    rows += [(state, state.capitalize(), counts.get(state, 0)) for state in JobState if state in (*counts, now)]
    return render(request, "jobs/list/_states.html", {"rows": rows, "now": now})


def _results(request: HttpRequest, user: User) -> dict[str, Any]:
    given = columns_of(user, joined_columns(request.GET))
    wanted, page = JobFilter(), KeysetPage[Job]([], None, None)
    groups: list[JobGroup] | None = None
    problems: dict[str, list[str]] = {}
    try:
        wanted = JobFilter(given)
        if wanted.values["group"]:
            groups = job_groups(user, wanted)
        else:
            page = job_page_of(user, wanted, given, PAGE_SIZE)
            with_places(page.rows)
    except UserError as error:
        problems = error.fields
    extra = extra_columns(wanted.chosen_columns)
    for job in page.rows:
        job.extra = [(column.label, _cell(value_of(job, column))) for column in extra]  # type: ignore[attr-defined]
        job.lasted = _lasted(job)  # type: ignore[attr-defined]
        job.brief_reason = _brief_reason(job)  # type: ignore[attr-defined]
    without = _left_out(wanted.chosen_columns) if wanted.chosen_columns else _empty_columns(page.rows)
    return {
        "wanted": wanted,
        "given": given,
        "is_more_open": any(given.get(name) for name in _MORE),
        "page": page,
        "groups": groups,
        "grouped_by": _LABELS.get(given.get("group", "")),
        "problems": [(name, _LABELS.get(name), sentence) for name, said in problems.items() for sentence in said],
        "heads": {column: _head(wanted.sorted_as, *sorts) for column, sorts in _HEADS.items()},
        "without": without,
        "extra": extra,
        "has_metrics": any(column.kind == "metric" for column in extra),
        "choices": _column_choices(wanted, page.rows, without),
    }


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool() | str():
            return str(value)
        case int() | float() if math.isfinite(value):
            return figure(value)
    return json.dumps(value, ensure_ascii=False)


def _lasted(job: Job) -> str:
    """Return the time from the first start to the end, or until now."""
    return duration(((job.finished_at or timezone.now()) - job.started_at).total_seconds()) if job.started_at else ""


def _brief_reason(job: Job) -> str:
    """Return a reason for a narrow column, without the number of GPUs, which has a column of its own.

    A training that is over has its error or its last metrics instead.
    """
    if job.state == JobState.FAILED and job.run.error:
        return ": ".join(filter(None, (job.run.error.get("kind"), job.run.error.get("message"))))
    if job.finished_at:
        values = [f"{name} {_cell(job.run.final_metrics[name])}" for name in main_metrics(job)[:_METRICS_OF_ENDED]]
        return ", ".join(values) or job.reason_text
    params = job.reason_params
    held = f"{params['target']} of {gpus(params['capacity'])}: " if params.keys() >= {"target", "capacity"} else ""
    return job.reason_text.removeprefix(held)


def _left_out(chosen: Collection[str]) -> str:
    return " ".join(column for column in FACTS if column not in chosen)


def _column_choices(wanted: JobFilter, jobs: Sequence[Job], without: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return (heading, boxes) of the available columns: those of every job, then those of any job on this page."""
    chosen = {*wanted.chosen_columns, *(column for column in FACTS if column not in without.split())}
    facts = [{"key": key, "label": label, "on": key in chosen} for key, label in FACTS.items()]
    found = {column.key: column for column in [*extra_columns(wanted.chosen_columns), *names_of(jobs)]}
    extra = [
        (
            f"{heading}s",
            [
                {"key": key, "label": column.label, "on": key in chosen}
                for key, column in found.items()
                if column.kind == kind
            ],
        )
        for kind, heading in OF_ONE.items()
    ]
    return [("Columns", facts), *((heading, boxes) for heading, boxes in extra if boxes)]


def _head(sort: str, first: str, then: str) -> dict[str, str]:
    """Return the order that a click on the column's head selects, and its current `aria-sort`."""
    now = {"name": "ascending", "oldest": "ascending", "-priority": "ascending"}
    aria = "none" if sort not in (first, then) else now.get(sort, "descending")
    return {"sort": then if sort == first else first, "aria": aria}


def _empty_columns(jobs: list[Job]) -> str:
    """Return the columns that are empty in every row of this page, and *Ended* unless all rows are finished."""
    filled = {
        **{column: column in USUAL for column in FACTS},
        "place": any(getattr(job, "place", None) for job in jobs),
        "duration": any(job.started_at for job in jobs),
        "slots": any(job.run.slots for job in jobs),
        "progress": any(job.run.progress is not None for job in jobs),
        "ended": all(job.finished_at for job in jobs),
        "tags": any(job.tags.all() for job in jobs),
        "owner": len({job.owner_id for job in jobs}) > 1,
        "group": len({job.instance_group_id for job in jobs}) > 1,
    }
    return " ".join(column for column, is_filled in filled.items() if not is_filled)


def _names(user: User, given: dict[str, str]) -> list[dict[str, Any]]:
    """Return the fields that take a name, with the existing names."""
    users = User.objects.order_by("username").values_list("username", flat=True)
    rows = {
        "tag": known_tags(user),
        "owner": users if is_cluster_admin(user) else None,
        "model": readable(RegisteredModel.objects.all(), user).order_by("name").values_list("name", flat=True),
        "dataset": Dataset.objects.order_by("name").values_list("name", flat=True),
        "instance_group": InstanceGroup.objects.order_by("name").values_list("name", flat=True),
    }
    return [
        {"name": name, "label": _LABELS[name], "value": given.get(name, ""), "names": list(names[:_MOST_SUGGESTIONS])}
        for name, names in rows.items()
        if names is not None
    ]
