"""The page "What if": the past, played again under other rules. For administrators of the cluster."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.charts import Band, Step, tide_figure
from core.errors import NotFound
from core.pages import carried_out, done, login_user, say
from core.roles import require_cluster_admin
from core.time import iso
from jobs.actions.replays import ask_for_replay, remove_replay
from jobs.insight.replay_words import Change, asked_in_words, changes, limits, sentence, tiles
from jobs.models import Job, Replay
from jobs.pages.what_if.forms import WhatIfForm
from jobs.queries.replays import find_replay, replays

__all__ = ["what_if", "what_if_remove", "what_if_replay"]

_CRUMB = ("What if", "/what-if/")
_CHARTS = {"recorded": "As recorded", "same": "Replayed, the rules as they were", "other": "Replayed as asked"}
_COLUMNS = ("Time", "Training", "GPUs", "Why", "Pause (ms)")


@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """Show what was asked before, and the form; POST asks."""
    require_cluster_admin(request.user)
    form = WhatIfForm(request.POST or None)
    replay = carried_out(request, form, lambda: ask_for_replay(form.spec(), login_user(request)))
    if replay is not None:
        return redirect("what-if-replay", replay.pk)
    context = {
        "section": "what-if",
        "crumbs": [("What if", None)],
        "form": form,
        "rows": [(one, asked_in_words(one), sentence(one) if one.result else "") for one in replays()],
    }
    return render(request, "jobs/what_if/page.html", context, status=400 if form.errors else 200)


@require_safe
def what_if_replay(request: HttpRequest, number: int) -> HttpResponse:
    require_cluster_admin(request.user)
    replay = _replay_or_404(number)
    context: dict[str, Any] = {
        "section": "what-if",
        "crumbs": [_CRUMB, (f"Replay {number}", None)],
        "replay": replay,
        "asked": asked_in_words(replay),
    }
    return render(request, "jobs/what_if/replay.html", {**context, **(_found(replay) if replay.result else {})})


@require_POST
def what_if_remove(request: HttpRequest, number: int) -> HttpResponse:
    require_cluster_admin(request.user)
    _replay_or_404(number)
    if done(request, lambda: remove_replay(number, login_user(request))):
        say(request, f"Replay {number} is removed.")
    return redirect(reverse("what-if"))


def _replay_or_404(number: int) -> Replay:
    try:
        return find_replay(number)
    except NotFound:
        raise Http404 from None


def _found(replay: Replay) -> dict[str, Any]:
    gains, losses, alike = changes(replay)
    bands = [band["job"] for part in replay.result["series"].values() for band in part]
    wanted = {*bands, *(change.job for change in (*gains, *losses))}
    names = dict(Job.objects.filter(pk__in=wanted).values_list("pk", "name"))
    shown = {
        name: part
        for name, part in replay.result["series"].items()
        if name != "other" or not replay.result["is_too_large"]
    }
    # The replay of the same rules is for belief: with another one beside it, its errors say enough.
    drawn = ("recorded", "other") if "other" in shown else ("recorded", "same")
    return {
        "text": sentence(replay),
        "tiles": tiles(replay),
        "has_other": "other" in shown,
        "limits": limits(replay),
        "gains": [_row(change, names) for change in gains],
        "losses": [_row(change, names) for change in losses],
        "alike": alike,
        "charts": [(f"replay-{name}", _CHARTS[name]) for name in drawn],
        "columns": _COLUMNS,
        "figures": {f"replay-{name}": _figure(replay, shown[name], names) for name in drawn},
        "window": {"start": iso(replay.start), "end": iso(replay.end)},
    }


def _row(change: Change, names: dict[int, str]) -> dict[str, Any]:
    return {"change": change, "name": names.get(change.job, "")}


def _figure(replay: Replay, series: Sequence[dict[str, Any]], names: dict[int, str]) -> dict[str, Any]:
    capacity = max(replay.result["gpus"], replay.alternative.get("gpus", 0))
    bands = [
        Band(band["job"], names.get(band["job"], "") if band["job"] else "Others", list(_steps(band["steps"])))
        for band in series
    ]
    return tide_figure(bands, capacity, pool=True)


def _steps(steps: Iterable[Sequence[float]]) -> Iterable[Step]:
    for at, slots in steps:
        yield Step(datetime.fromtimestamp(at, UTC), slots)
