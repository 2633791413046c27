"""The usage page: charts, a table, and the prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.errors import UserError
from core.formfields import show_error
from core.live import CLUSTER, current_seqs
from core.notices import Undo, say
from core.pages import login_user
from core.roles import require_cluster_admin
from core.time import iso
from jobs.models import GpuPrice
from jobs.pages.usage.forms import PriceForm
from jobs.usage.charts import Area, activity_figure, allocation_figure
from jobs.usage.claims import first_held
from jobs.usage.intervals import Amount, moment, to_ms
from jobs.usage.labels import UNKNOWN_MODEL
from jobs.usage.prices import known_models, prices, remove_price, set_price
from jobs.usage.query import BY, RANGES, Asked, parsed, range_to_see
from jobs.usage.report import Report, Row, report
from jobs.usage.shapes import cost_of, gpu_hours

__all__ = ["price_remove", "price_restore", "usage", "usage_report"]

BY_WORDS = {"user": "User", "group": "Instance group", "job": "Job", "host": "Host", "gpu_model": "GPU model"}
_ROWS = 50


@require_http_methods(["GET", "HEAD", "POST"])
def usage(request: HttpRequest) -> HttpResponse:
    """Show the usage; POST sets a price."""
    if request.method == "POST":
        require_cluster_admin(request.user)
    form = _price_form(request)
    if request.method == "POST" and form.is_valid():
        try:
            price = set_price(login_user(request), **form.cleaned_data)
        except UserError as error:
            show_error(form, error)
        else:
            say(request, f"{price.gpu_model} costs {_money(price)} per GPU-hour from {price.valid_from} on.")
            return redirect(f"{reverse('usage')}?{request.GET.urlencode()}#prices")
    now = to_ms(timezone.now())
    try:
        asked, mistake = parsed(request.GET.dict(), now, usual=range_to_see(first_held(), now)), ""
    except UserError as error:
        asked, mistake = (
            parsed({"by": request.GET.get("by", "") if request.GET.get("by") in BY else ""}, now),
            error.message,
        )
    context = {
        "section": "usage",
        "crumbs": [("Usage", None)],
        "mistake": mistake,
        "given": request.GET,
        "form": form,
        "prices": [(price, _money(price)) for price in prices()],
        **_choices(asked),
        **_content(request, asked, now),
    }
    return render(request, "jobs/usage/page.html", context, status=400 if mistake or form.errors else 200)


@require_safe
def usage_report(request: HttpRequest) -> JsonResponse:
    """Return newer values of what changes on the page."""
    now = to_ms(timezone.now())
    try:
        asked = parsed(request.GET.dict(), now)
    except UserError as error:
        return JsonResponse({"error": error.message}, status=error.status)
    content = _content(request, asked, now)
    parts = {name: render_to_string(f"jobs/usage/_{name}.html", content, request) for name in ("figures", "table")}
    return JsonResponse({**content["live"], **parts, "charts": content["charts"]})


@require_POST
def price_remove(request: HttpRequest, number: int) -> HttpResponse:
    require_cluster_admin(request.user)
    try:
        price = remove_price(login_user(request), number)
    except UserError as error:
        messages.error(request, error.message)
    else:
        fields = {"gpu_model": price.gpu_model, "valid_from": str(price.valid_from), "per_hour": str(price.per_hour)}
        words = f"The price of {price.gpu_model} from {price.valid_from} on is removed."
        say(request, words, undo=Undo(reverse("usage-price-restore"), fields))
    return redirect(f"{reverse('usage')}#prices")


@require_POST
def price_restore(request: HttpRequest) -> HttpResponse:
    """Restore a price that was removed."""
    require_cluster_admin(request.user)
    form = _price_form(request)
    try:
        if form.is_valid():
            price = set_price(login_user(request), **form.cleaned_data)
            say(request, f"{price.gpu_model} costs {_money(price)} per GPU-hour from {price.valid_from} on.")
    except UserError as error:
        messages.error(request, error.message)
    return redirect(f"{reverse('usage')}#prices")


def _price_form(request: HttpRequest) -> PriceForm:
    return PriceForm(request.POST or None, today=timezone.now().date(), models=known_models())


def _money(price: GpuPrice) -> str:
    return f"{price.per_hour.normalize():f} {settings.TIDEPOOL_CURRENCY}"


def _choices(asked: Asked) -> dict[str, Any]:
    window = {"range": asked.range} if asked.range else {"from": iso(moment(asked.start)), "to": iso(moment(asked.end))}
    return {
        "asked": asked,
        "ranges": [
            (words, urlencode({"range": word, "by": asked.by}), word == asked.range)
            for word, (words, _) in RANGES.items()
        ],
        "ways": [
            (words.lower() if words != "GPU model" else words, urlencode({**window, "by": way}), way == asked.by)
            for way, words in BY_WORDS.items()
        ],
        "window_from": moment(asked.start).strftime("%Y-%m-%dT%H:%M"),
        "window_to": moment(asked.end).strftime("%Y-%m-%dT%H:%M"),
        "query": urlencode({**window, "by": asked.by}),
        "allocation_title": f"GPUs by {BY_WORDS[asked.by].lower() if asked.by != 'gpu_model' else 'GPU model'}",
    }


def _content(request: HttpRequest, asked: Asked, now: int) -> dict[str, Any]:
    # Its number first: what is published meanwhile comes again.
    live = {"seq": current_seqs([CLUSTER])[CLUSTER], "state": {}, "append": {}}
    found = report(login_user(request), asked, now, _ROWS)
    return {
        "live": live,
        "asked": asked,
        "by_words": BY_WORDS[asked.by],
        "currency": settings.TIDEPOOL_CURRENCY,
        "total": _row(found.total, asked),
        "rows": [_row(row, asked) for row in found.rows],
        "left_out": found.left_out,
        "charts": _charts(found),
    }


def _row(row: Row, asked: Asked) -> dict[str, Any]:
    amount, cost = row.amount, cost_of(row)
    return {
        "label": row.label,
        "href": _address(row, asked),
        "held": gpu_hours(amount.held),
        "busy": gpu_hours(amount.busy),
        "busy_part": _part(amount, amount.busy),
        "idle": gpu_hours(amount.idle),
        "idle_part": _part(amount, amount.idle),
        "unmeasured": gpu_hours(amount.unmeasured),
        "is_measured": amount.unmeasured < amount.held,
        "is_unmeasured": amount.unmeasured > 0,
        "cost": None if cost is None else f"{cost:,}",
        "unpriced": gpu_hours(row.cost.unpriced) if row.cost.unpriced and cost is not None else "",
    }


def _part(amount: Amount, milliseconds: int) -> str:
    """Return the share of what was measured."""
    measured = amount.busy + amount.idle
    return f"{100 * milliseconds / measured:.0f} %" if measured else ""


def _address(row: Row, asked: Asked) -> str:
    if asked.by == "job" and row.key is not None:
        return reverse("jobs:detail", args=[row.key])
    names = {"user": "owner", "group": "instance_group"}
    return f"{reverse('jobs:list')}?{urlencode({names[asked.by]: row.label})}" if row.key and asked.by in names else ""


def _charts(found: Report) -> dict[str, Any]:
    times, asked = found.timeline, found.asked
    edges = [iso(moment(at)) or "" for at in times.edges]
    looks = _looks(asked.by, [band.key for band in times.bands])
    areas = [Area(band.label or UNKNOWN_MODEL, band.gpus, looks.get(band.key)) for band in times.bands]
    shown = {
        "start": edges[0],
        "end": edges[-1],
        "step_seconds": None if times.step is None else times.step // 1000,
        "moves": bool(asked.range),
    }
    return {
        "allocation": {**allocation_figure(edges, areas, times.capacity), "shown": shown},
        "activity": {
            **activity_figure(edges, times.held, times.busy, times.idle, times.capacity),
            "shown": shown,
        },
    }


def _looks(by: str, keys: list[int | str | None]) -> Mapping[int | str | None, int]:
    """Return the look of each row: a job's own, and distinct ones for others."""
    named = [key for key in keys if key is not None]
    if by == "job":
        return {key: int(key) for key in named}
    return {key: number for number, key in enumerate(sorted(named, key=str), start=1)}
