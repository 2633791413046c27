"""The page of a user's own alerts."""

from typing import Any

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from alerts import actions, queries
from alerts.forms import ChannelForm, QuietForm, RuleForm
from alerts.messages import title_of
from alerts.models import Delivery
from core.pages import carried_out, done, login_user, or_404, say
from core.shown_once import redirect_showing, shown_once

__all__ = [
    "alerts",
    "channel_add",
    "channel_remove",
    "channel_test",
    "deliveries_now",
    "quiet_end",
    "quiet_set",
    "rule_add",
    "rule_remove",
]

_MOST_SHOWN = 20


@require_safe
def alerts(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_safe
def deliveries_now(request: HttpRequest) -> HttpResponse:
    """Return the list of messages alone, while one is on its way."""
    return render(request, "alerts/_deliveries.html", _deliveries(request))


@require_POST
def channel_add(request: HttpRequest) -> HttpResponse:
    form = ChannelForm(request.POST)

    made = carried_out(request, form, lambda: actions.add_channel(login_user(request), **form.cleaned_data))
    if made is None:
        return _page(request, channel_form=form)
    if not made.secret:
        say(request, f"The channel “{made.row.name}” has been added. Send a test, then add a rule.")
        return redirect("alerts")
    return redirect_showing(request, reverse("alerts"), id=made.row.pk, name=made.row.name, secret=made.secret)


@require_POST
def channel_remove(request: HttpRequest, channel_id: int) -> HttpResponse:
    channel = or_404(queries.channels(login_user(request)).filter(pk=channel_id).first())
    if done(request, lambda: actions.remove_channel(login_user(request), channel_id)):
        say(request, f"The channel “{channel.name}” has been removed together with its rules.")
    return redirect("alerts")


@require_POST
def channel_test(request: HttpRequest, channel_id: int) -> HttpResponse:
    or_404(queries.channels(login_user(request)).filter(pk=channel_id).first())
    if done(request, lambda: actions.test_channel(login_user(request), channel_id)):
        say(request, "A test is being sent. The list of messages shows its delivery.")
    return redirect("alerts")


@require_POST
def rule_add(request: HttpRequest) -> HttpResponse:
    user = login_user(request)
    form = RuleForm(user, request.POST)

    def add() -> object:
        given = form.cleaned_data
        return actions.add_rule(user, given["channel"], given["kind"], given["group"] or None, given["minutes"])

    if carried_out(request, form, add) is None:
        return _page(request, rule_form=form)
    say(request, "The rule has been added.")
    return redirect("alerts")


@require_POST
def rule_remove(request: HttpRequest, rule_id: int) -> HttpResponse:
    or_404(queries.rules(login_user(request)).filter(pk=rule_id).first())
    if done(request, lambda: actions.remove_rule(login_user(request), rule_id)):
        say(request, "The rule has been removed.")
    return redirect("alerts")


@require_POST
def quiet_set(request: HttpRequest) -> HttpResponse:
    form = QuietForm(request.POST)
    if not carried_out(request, form, lambda: actions.set_quiet_hours(login_user(request), **form.cleaned_data)):
        return _page(request, quiet_form=form)
    say(request, "Your quiet hours have been set. Alerts from these hours are sent afterwards.")
    return redirect("alerts")


@require_POST
def quiet_end(request: HttpRequest) -> HttpResponse:
    actions.end_quiet_hours(login_user(request))
    say(request, "Your quiet hours have been removed.")
    return redirect("alerts")


def _page(
    request: HttpRequest,
    *,
    channel_form: Form | None = None,
    rule_form: Form | None = None,
    quiet_form: Form | None = None,
) -> HttpResponse:
    user = login_user(request)
    channels, made = list(queries.channels(user)), shown_once(request)
    quiet = queries.quiet_hours(user)
    given = {"begins": quiet.begins, "ends": quiet.ends, "time_zone": quiet.time_zone} if quiet else None
    context = {
        "section": "account",
        "crumbs": [("Your account", "/account/"), ("Alerts", None)],
        "channels": channels,
        "rules": list(queries.rules(user)),
        "quiet": quiet,
        "channel_form": channel_form or ChannelForm(),
        "rule_form": rule_form or RuleForm(user),
        "quiet_form": quiet_form or QuietForm(initial=given),
        "made": made if made and any(channel.pk == made["id"] for channel in channels) else None,
        **_deliveries(request),
    }
    is_refused = channel_form or rule_form or quiet_form
    return render(request, "alerts/page.html", context, status=400 if is_refused else 200)


def _deliveries(request: HttpRequest) -> dict[str, Any]:
    newest = queries.newest_messages(login_user(request), _MOST_SHOWN)
    waiting = Delivery.State.WAITING
    return {
        "deliveries": [(row, alert, title_of(alert) if alert else "") for row, alert in newest],
        "is_under_way": any(row.state == waiting and not row.tries for row, _ in newest),
    }
