"""The page What if: replays of the past under other rules.

Administrators start replays, and see all of them. Other users see the figures of their instance groups.
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
from replay.sentences import change_phrases, gains_and_losses, group_result, limits, result_sentence, tiles
from replay.visibility import Moment, VisibleJob, visible_jobs_of, visible_moments, visible_part

__all__ = ["what_if", "what_if_remove", "what_if_replay"]

_CRUMB = ("What if", "/what-if/")
_CHARTS = {"recorded": "Recorded", "same": "Replayed without changes", "other": "Replayed with the changes"}
_COLUMNS = ("Time", "Training", "GPUs", "Why", "Pause (ms)")


@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """Show the list of replays, and to administrators the form; POST starts a replay."""
    if request.method == "POST":
        require_cluster_admin(request.user)
    form = WhatIfForm(request.POST or None) if is_cluster_admin(request.user) else None
    if form is not None:
        replay = carried_out(request, form, lambda: ask_for_replay(form.spec(), login_user(request)))
        if replay is not None:
            return redirect("what-if-replay", replay.pk)
    seen = [visible_part(one, request.user) for one in replays()]
    context = {
        "section": "what-if",
        "crumbs": [("What if", None)],
        "form": form,
        "rows": [(one, change_phrases(one), result_sentence(one) if one.result else "") for one in seen],
    }
    return render(request, "replay/page.html", context, status=400 if form is not None and form.errors else 200)


@require_safe
def what_if_replay(request: HttpRequest, number: int) -> HttpResponse:
    whole = _replay_or_404(number)
    replay = visible_part(whole, request.user)
    form = MomentForm(whole, request.GET if "at" in request.GET else None)
    moments = _moments(whole, form, request) if replay.result and form.is_bound else None
    context: dict[str, Any] = {
        "section": "what-if",
        "crumbs": [_CRUMB, (f"Replay {number}", None)],
        "replay": replay,
        "changes": change_phrases(replay),
        "has_moments": bool(whole.moments),
        "form": form,
        "moments": moments,
        **(_result_context(whole, replay, request) if replay.result else {}),
    }
    return render(request, "replay/replay.html", context, status=400 if form.errors else 200)


def _moments(replay: Replay, form: MomentForm, request: HttpRequest) -> list[tuple[Moment, str]] | None:
    if not form.is_valid():
        return None
    try:
        return visible_moments(replay, form.cleaned_data["play"], form.cleaned_data["at"], login_user(request))
    except UserError as error:
        show_error(form, error)
        return None


@require_POST
def what_if_remove(request: HttpRequest, number: int) -> HttpResponse:
    require_cluster_admin(request.user)
    _replay_or_404(number)
    if done(request, lambda: remove_replay(number, login_user(request))):
        say(request, f"Replay {number} was removed.")
    return redirect(reverse("what-if"))


def _replay_or_404(number: int) -> Replay:
    try:
        return find_replay(number)
    except NotFound:
        raise Http404 from None


def _result_context(whole: Replay, replay: Replay, request: HttpRequest) -> dict[str, Any]:
    """Return the context of a result. whole: the complete replay; replay: the part that the reader may see."""
    result = replay.result
    seen = visible_jobs_of(request.user, [row[0] for row in whole.jobs])
    gains, losses, alike = gains_and_losses(whole, seen)
    has_other = bool(whole.result["other"]) and not whole.result["is_too_large"]
    charts = _charts(whole, seen) if "series" in result else {}
    return {
        "text": result_sentence(replay),
        "tables": [("", tiles(result))]
        if "recorded" in result
        else [(name, tiles(group_result(replay, name))) for name in result["groups"]],
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


def _charts(replay: Replay, seen: Mapping[int, VisibleJob]) -> dict[str, Any]:
    """Return the recorded chart and a replayed one: with the changes, if they can be compared, or without."""
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
