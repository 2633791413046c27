"""The usage page: charts, a table, and the prices."""

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
from usage.usage_query import BY, RANGES, Asked, parsed, range_to_see
from usage.usage_report import Row, report
from workers.topics import CLUSTER

__all__ = ["gpu_hours", "price_remove", "price_restore", "usage", "usage_report"]

BY_WORDS = {"user": "User", "group": "Instance group", "job": "Training", "host": "Host", "gpu_model": "GPU model"}
_ROWS = 50


class PriceForm(forms.Form):
    """The action checks what is given; the form only carries it."""

    gpu_model = forms.CharField(
        label="GPU model", max_length=128, widget=forms.TextInput(attrs={"list": "gpu-models", "autocomplete": "off"})
    )
    per_hour = forms.CharField(
        label="Price per GPU-hour", max_length=20, widget=forms.TextInput(attrs={"inputmode": "decimal"})
    )
    valid_from = forms.DateField(
        label="From this day on",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="From midnight in UTC. Costs of the days before stay what they were.",
    )

    def __init__(self, request: HttpRequest) -> None:
        self.models = known_models()
        initial = {"valid_from": timezone.now().date(), "gpu_model": self.models[0] if len(self.models) == 1 else ""}
        super().__init__(request.POST or None, initial=initial)


@require_http_methods(["GET", "HEAD", "POST"])
def usage(request: HttpRequest) -> HttpResponse:
    """Show the usage; POST sets a price."""
    if request.method == "POST":
        require_cluster_admin(request.user)
    form = PriceForm(request)
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
        by = request.GET.get("by", "")
        asked, mistake = parsed({"by": by if by in BY else ""}, now), error.message
    context = {
        "section": "usage",
        "crumbs": [("Usage", None)],
        "mistake": mistake,
        "given": request.GET,
        "form": form,
        "prices": [(price, _money(price)) for price in GpuPrice.objects.order_by("gpu_model", "-valid_from")],
        **_choices(asked),
        **_content(request, asked, now),
    }
    return render(request, "usage/page.html", context, status=400 if mistake or form.errors else 200)


@require_safe
def usage_report(request: HttpRequest) -> JsonResponse:
    """Return newer values of what changes on the page."""
    now = to_ms(timezone.now())
    try:
        asked = parsed(request.GET.dict(), now)
    except UserError as error:
        return JsonResponse({"error": error.message}, status=error.status)
    content = _content(request, asked, now)
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
        words = f"The price of {price.gpu_model} from {price.valid_from} on is removed."
        say(request, words, undo=Undo(reverse("usage-price-restore"), fields))
    return redirect(f"{reverse('usage')}#prices")


@require_POST
def price_restore(request: HttpRequest) -> HttpResponse:
    """Restore a price that was removed."""
    require_cluster_admin(request.user)
    form = PriceForm(request)
    try:
        if form.is_valid():
            price = set_price(login_user(request), **form.cleaned_data)
            say(request, f"{price.gpu_model} costs {_money(price)} per GPU-hour from {price.valid_from} on.")
    except UserError as error:
        messages.error(request, error.message)
    return redirect(f"{reverse('usage')}#prices")


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
        "currency": found.currency,
        "total": _row(found.total, asked),
        "rows": [_row(row, asked) for row in found.rows],
        "left_out": found.left_out,
        "charts": usage_figures(asked, found.timeline),
    }


def _row(row: Row, asked: Asked) -> dict[str, Any]:
    amount, cost = row.amount, row.money
    names, href = {"user": "owner", "group": "instance_group"}, ""
    if row.key and asked.by == "job":
        href = reverse("jobs:detail", args=[row.key])
    elif row.key and asked.by in names:
        href = f"{reverse('jobs:list')}?{urlencode({names[asked.by]: row.label})}"
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
    """Return the share of what was measured."""
    measured = amount.busy + amount.idle
    return f"{100 * milliseconds / measured:.0f} %" if measured else ""


def gpu_hours(milliseconds: int) -> str:
    """Return GPU-hours with as many digits as say something: 0.02, 3.2, 1,234."""
    hours = milliseconds / HOUR
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"
