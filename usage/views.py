"""The Usage page: charts, a table, and prices."""

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.errors import UserError
from core.live import current_seqs
from core.pages import Undo, login_user, say, show_error
from core.roles import require_cluster_admin
from core.time import iso
from jobs.gpu_time import HOUR, Amount, moment, to_ms
from usage.charts import usage_figures
from usage.claim_intervals import first_held
from usage.models import GpuPrice
from usage.prices import known_models, remove_price, set_price
from usage.usage_query import BY, RANGES, ReportQuery, default_range, parse_query
from usage.usage_report import Row, report
from workers.topics import CLUSTER

__all__ = ["BY_LABELS", "gpu_hours", "price_remove", "price_restore", "usage", "usage_report"]

BY_LABELS = {"user": "User", "group": "Instance group", "job": "Training", "host": "Host", "gpu_model": "GPU model"}
_MAX_ROWS = 50


class PriceForm(forms.Form):
    """Price of a GPU model. `set_price` validates it."""

    gpu_model = forms.CharField(
        label="GPU model", max_length=128, widget=forms.TextInput(attrs={"list": "gpu-models", "autocomplete": "off"})
    )
    per_hour = forms.CharField(
        label="Price per GPU-hour", max_length=20, widget=forms.TextInput(attrs={"inputmode": "decimal"})
    )
    valid_from = forms.DateField(
        label="First day",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="The price holds from midnight UTC. Costs of earlier days do not change.",
    )

    def __init__(self, request: HttpRequest) -> None:
        self.models = known_models()
        initial = {"valid_from": timezone.now().date(), "gpu_model": self.models[0] if len(self.models) == 1 else ""}
        super().__init__(request.POST or None, initial=initial)


@require_http_methods(["GET", "HEAD", "POST"])
def usage(request: HttpRequest) -> HttpResponse:
    """Show the page; POST sets a price."""
    if request.method == "POST":
        require_cluster_admin(request.user)
    form = PriceForm(request)
    if request.method == "POST" and form.is_valid():
        try:
            price = set_price(login_user(request), **form.cleaned_data)
        except UserError as error:
            show_error(form, error)
        else:
            say(request, _is_set(price))
            return redirect(f"{reverse('usage')}?{request.GET.urlencode()}#prices")
    now = to_ms(timezone.now())
    try:
        query, problem = parse_query(request.GET.dict(), now, default=default_range(first_held(), now)), ""
    except UserError as error:
        by = request.GET.get("by", "")
        query, problem = parse_query({"by": by if by in BY else ""}, now), error.message
    context = {
        "section": "usage",
        "crumbs": [("Usage", None)],
        "problem": problem,
        "given": request.GET,
        "form": form,
        "prices": [(price, _money(price)) for price in GpuPrice.objects.order_by("gpu_model", "-valid_from")],
        **_choices(query),
        **_content(request, query, now),
    }
    return render(request, "usage/page.html", context, status=400 if problem or form.errors else 200)


@require_safe
def usage_report(request: HttpRequest) -> JsonResponse:
    """Return new charts and figures for the open page, as JSON."""
    now = to_ms(timezone.now())
    try:
        query = parse_query(request.GET.dict(), now)
    except UserError as error:
        return JsonResponse({"error": error.message}, status=error.status)
    content = _content(request, query, now)
    parts = {name: render_to_string(f"usage/_{name}.html", content, request) for name in ("figures", "table")}
    return JsonResponse({**content["live"], **parts, "charts": content["charts"]})


@require_POST
def price_remove(request: HttpRequest, number: int) -> HttpResponse:
    require_cluster_admin(request.user)
    try:
        price = remove_price(login_user(request), number)
    except UserError as error:
        messages.error(request, error.message)
    else:
        fields = {name: str(getattr(price, name)) for name in ("gpu_model", "valid_from", "per_hour")}
        text = f"Removed the price of {price.gpu_model} from {_day(price)}."
        say(request, text, undo=Undo(reverse("usage-price-restore"), fields))
    return redirect(f"{reverse('usage')}#prices")


@require_POST
def price_restore(request: HttpRequest) -> HttpResponse:
    """Set a removed price again."""
    require_cluster_admin(request.user)
    form = PriceForm(request)
    try:
        if form.is_valid():
            price = set_price(login_user(request), **form.cleaned_data)
            say(request, _is_set(price))
    except UserError as error:
        messages.error(request, error.message)
    return redirect(f"{reverse('usage')}#prices")


def _is_set(price: GpuPrice) -> str:
    return f"{price.gpu_model} costs {_money(price)} per GPU-hour from {_day(price)}."


def _day(price: GpuPrice) -> str:
    return date_format(price.valid_from, "j M Y")


def _money(price: GpuPrice) -> str:
    return f"{price.per_hour.normalize():f} {settings.TIDEPOOL_CURRENCY}"


def _choices(query: ReportQuery) -> dict[str, Any]:
    window = {"range": query.range} if query.range else {"from": iso(moment(query.start)), "to": iso(moment(query.end))}
    return {
        "ranges": [
            (label, urlencode({"range": name, "by": query.by}), name == query.range)
            for name, (label, _) in RANGES.items()
        ],
        "dimensions": [
            (_lower_first(label), urlencode({**window, "by": by}), by == query.by) for by, label in BY_LABELS.items()
        ],
        "window_from": moment(query.start).strftime("%Y-%m-%dT%H:%M"),
        "window_to": moment(query.end).strftime("%Y-%m-%dT%H:%M"),
        "query_string": urlencode({**window, "by": query.by}),
        "allocation_title": f"GPUs by {_lower_first(BY_LABELS[query.by])}",
    }


def _lower_first(label: str) -> str:
    return label if label.startswith("GPU") else label.lower()


def _content(request: HttpRequest, query: ReportQuery, now: int) -> dict[str, Any]:
    # The sequence number is read before the report: changes during the queries are then delivered again.
    live = {"seq": current_seqs([CLUSTER])[CLUSTER], "state": {}, "append": {}}
    found = report(login_user(request), query, now, _MAX_ROWS)
    return {
        "live": live,
        "query": query,
        "by_label": BY_LABELS[query.by],
        "by_label_lower": _lower_first(BY_LABELS[query.by]),
        "currency": found.currency,
        "total": _row(found.total, query),
        "rows": [_row(row, query) for row in found.rows],
        "left_out": found.left_out,
        "charts": usage_figures(query, found.timeline),
    }


def _row(row: Row, query: ReportQuery) -> dict[str, Any]:
    amount, cost = row.amount, row.money
    names, href = {"user": "owner", "group": "instance_group"}, ""
    if row.key and query.by == "job":
        href = reverse("jobs:detail", args=[row.key])
    elif row.key and query.by in names:
        href = f"{reverse('jobs:list')}?{urlencode({names[query.by]: row.label})}"
    return {
        "label": row.label,
        "href": href,
        "held": gpu_hours(amount.held),
        "training": gpu_hours(amount.training),
        "changing": gpu_hours(amount.changing),
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
    """Return the percentage of the measured time."""
    measured = amount.busy + amount.idle
    return f"{100 * milliseconds / measured:.0f} %" if measured else ""


def gpu_hours(milliseconds: int) -> str:
    """Return GPU-hours with two decimals below 10, one below 100, and none above: 0.02, 32.1, 1,234."""
    hours = milliseconds / HOUR
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"
