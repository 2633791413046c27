"""The page "What if": the past, played again under other rules.

Administrators ask, and see all; others see figures of the instance groups that they may use.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.charts import Band, Step, tide_figure
from core.errors import NotFound, UserError
from core.pages import carried_out, done, login_user, say, show_error
from core.roles import is_cluster_admin, require_cluster_admin
from core.time import iso
from replay.actions import ask_for_replay, remove_replay
from replay.forms import MomentForm, WhatIfForm
from replay.models import Replay
from replay.queries import find_replay, replays
from replay.sentences import asked_in_words, changes, limits, of_group, sentence, tiles
from replay.visibility import Moment, Seen, as_seen, moments_seen, seen_jobs

__all__ = ["what_if", "what_if_remove", "what_if_replay"]

_CRUMB = ("What if", "/what-if/")
_CHARTS = {"recorded": "As recorded", "same": "Replayed, the rules as they were", "other": "Replayed as asked"}
_COLUMNS = ("Time", "Training", "GPUs", "Why", "Pause (ms)")


@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """Show what was asked before, and to administrators the form; POST asks."""
    asks = is_cluster_admin(request.user)
    if request.method == "POST":
        require_cluster_admin(request.user)
    form = WhatIfForm(request.POST or None) if asks else None
    if form is not None:
        replay = carried_out(request, form, lambda: ask_for_replay(form.spec(), login_user(request)))
        if replay is not None:
            return redirect("what-if-replay", replay.pk)
    seen = [as_seen(one, request.user) for one in replays()]
    context = {
        "section": "what-if",
        "crumbs": [("What if", None)],
        "form": form,
        "rows": [(one, asked_in_words(one), sentence(one) if one.result else "") for one in seen],
    }
    return render(request, "replay/page.html", context, status=400 if form is not None and form.errors else 200)


@require_safe
def what_if_replay(request: HttpRequest, number: int) -> HttpResponse:
    whole = _replay_or_404(number)
    replay = as_seen(whole, request.user)
    form = MomentForm(whole, request.GET if "at" in request.GET else None)
    moments = _moments(whole, form, request) if replay.result and form.is_bound else None
    context: dict[str, Any] = {
        "section": "what-if",
        "crumbs": [_CRUMB, (f"Replay {number}", None)],
        "replay": replay,
        "asked": asked_in_words(replay),
        "has_moments": bool(whole.moments),
        "form": form,
        "moments": moments,
        **(_found(whole, replay, request) if replay.result else {}),
    }
    return render(request, "replay/replay.html", context, status=400 if form.errors else 200)


def _moments(replay: Replay, form: MomentForm, request: HttpRequest) -> list[tuple[Moment, str]] | None:
    if not form.is_valid():
        return None
    try:
        return moments_seen(replay, form.cleaned_data["play"], form.cleaned_data["at"], login_user(request))
    except UserError as error:
        show_error(form, error)
        return None


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


def _found(whole: Replay, replay: Replay, request: HttpRequest) -> dict[str, Any]:
    """whole: with all of its trainings; replay: what the reader sees of it."""
    result = replay.result
    seen = seen_jobs(request.user, [row[0] for row in whole.jobs])
    gains, losses, alike = changes(whole, seen)
    has_other = bool(whole.result["other"]) and not whole.result["is_too_large"]
    charts = _charts(whole, seen) if "series" in result else {}
    return {
        "text": sentence(replay),
        "tables": [("", tiles(result))]
        if "recorded" in result
        else [(name, tiles(of_group(replay, name))) for name in result["groups"]],
        "has_other": has_other,
        "limits": limits(replay),
        "gains": [(change, seen[change.job]) for change in gains],
        "losses": [(change, seen[change.job]) for change in losses],
        "alike": alike,
        "charts": [(f"replay-{name}", _CHARTS[name]) for name in charts],
        "columns": _COLUMNS,
        "figures": {f"replay-{name}": figure for name, figure in charts.items()},
        "window": {"start": iso(replay.start), "end": iso(replay.end)},
    }


def _charts(replay: Replay, seen: Mapping[int, Seen]) -> dict[str, Any]:
    """The replay of the same rules is for belief: with another one beside it, its errors say enough."""
    series, too_large = replay.result["series"], replay.result["is_too_large"]
    drawn = ("recorded", "other") if "other" in series and not too_large else ("recorded", "same")
    return {name: _figure(replay, series[name], {job: one.name for job, one in seen.items()}) for name in drawn}


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
