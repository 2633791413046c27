"""The hosts' page with drain, resume, remove and restore, and the page that adds hosts by join tokens."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.errors import UserError
from core.live import current_seqs
from core.pages import Undo, carried_out, done, login_user, or_404, say
from core.roles import is_cluster_admin, require_cluster_admin
from core.shown_once import redirect_showing, shown_once
from insights.cluster import IDLE_AFTER_SECONDS, page_of_hosts, pool_totals
from insights.host_panels import host_panels, idle_slots, question
from insights.unstored import unstored
from workers import actions, broker_users
from workers.forms import JoinForm
from workers.join_tokens import create_join_token, join_command, join_command_of_containers, withdraw_join_token
from workers.models import Host, JoinToken, Slot
from workers.queries import hosts
from workers.sick_slots import return_slot
from workers.topics import CLUSTER

__all__ = ["host_act", "host_join", "host_join_withdraw", "host_list", "host_question", "slot_return"]


#: Number of hosts on a page: each has two tables.
_HOSTS_ON_PAGE = 20


@dataclass(frozen=True)
class _HostAction:
    act: Callable[[str, Any], None]
    #: Message after success; `{}` is the host's name.
    done: str
    #: Verb of the action that undoes this one.
    undo: str | None


_ACTIONS = {
    "drain": _HostAction(actions.drain_host, "{} is being drained: nothing new starts there.", "resume"),
    "resume": _HostAction(actions.resume_host, "{} is in service again.", "drain"),
    "remove": _HostAction(actions.remove_host, "{} is removed.", "restore"),
    "restore": _HostAction(actions.restore_host, "{} is back in the lists.", None),
}


@require_safe
def host_list(request: HttpRequest) -> HttpResponse:
    # Read the sequence number first: a change published meanwhile arrives again and has no further effect.
    seq = current_seqs([CLUSTER])[CLUSTER]
    user = login_user(request)
    all_idle = pool_totals().idle
    idle = idle_slots(user, all_idle)
    page = page_of_hosts(hosts(), request.GET, _HOSTS_ON_PAGE)
    context = {
        "section": "hosts",
        "crumbs": [("Hosts", None)],
        "seq": seq,
        "panels": host_panels(user, page.rows),
        "page": page,
        "idle": idle,
        "more_idle": len(all_idle) - len(idle),
        "idle_after_seconds": round(IDLE_AFTER_SECONDS),
        "may_change": is_cluster_admin(user),
        "unstored": unstored(timezone.now()) if is_cluster_admin(user) else None,
        "removed": Host.objects.exclude(removed_at=None).order_by("name") if is_cluster_admin(user) else [],
    }
    return render(request, "insights/hosts/page.html", context)


@require_safe
def host_question(request: HttpRequest, host_id: int, verb: str) -> JsonResponse:
    """Return the question before a host is drained, resumed or removed; 409 if that is impossible."""
    require_cluster_admin(request.user)
    host = or_404(Host.objects.filter(pk=host_id, removed_at=None).first())
    try:
        return JsonResponse(asdict(question(host, verb)))
    except UserError as error:
        return JsonResponse({"error": error.message, "code": error.code, "fields": {}}, status=error.status)


@require_POST
def host_act(request: HttpRequest, host_id: int, verb: str) -> HttpResponse:
    require_cluster_admin(request.user)
    host = or_404(Host.objects.filter(pk=host_id).first())
    action = _ACTIONS[verb]
    if done(request, lambda: action.act(host.name, login_user(request))):
        undo = Undo(reverse("hosts:act", args=[host.pk, action.undo]), {}) if action.undo else None
        say(request, action.done.format(host.name), undo=undo)
    return redirect("hosts:list")


@require_POST
def slot_return(request: HttpRequest, slot: int) -> HttpResponse:
    require_cluster_admin(request.user)
    row = or_404(Slot.objects.filter(pk=slot, host__removed_at=None).select_related("host").first())
    if done(request, lambda: return_slot(row, login_user(request))):
        say(request, f"The GPU {row} is offered again.")
    return redirect("hosts:list")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def host_join(request: HttpRequest) -> HttpResponse:
    """Show join tokens. POST creates one, which the page shows once, in the commands that use it."""
    require_cluster_admin(request.user)
    form = JoinForm(request.POST or None)
    made = carried_out(request, form, lambda: create_join_token(login_user(request), **form.cleaned_data))
    if made is not None:
        token, row = made
        return redirect_showing(request, reverse("hosts:join"), id=row.pk, token=token)
    tokens = list(JoinToken.objects.filter(expires_at__gt=timezone.now()))
    context = {
        "section": "hosts",
        "crumbs": [("Hosts", "/hosts/"), ("Add hosts", None)],
        "form": form,
        "made": _shown_commands(request, tokens),
        "tokens": tokens,
        "can_join": bool(settings.TIDEPOOL_EXECUTOR_BROKER_URL),
        "broker_problem": _broker_problem() if settings.TIDEPOOL_EXECUTOR_BROKER_URL else "",
    }
    return render(request, "insights/hosts/join.html", context, status=400 if form.errors else 200)


def _broker_problem() -> str:
    """Return why hosts share a user of the broker, as the end of a sentence; "": each has its own."""
    try:
        return broker_users.problem()
    except (redis.RedisError, OSError):
        return "the broker does not answer now"


def _shown_commands(request: HttpRequest, tokens: list[JoinToken]) -> dict[str, Any] | None:
    """Return the commands with the token that the user has just created, unless it is withdrawn."""
    shown = shown_once(request)
    if shown is None or all(token.pk != shown["id"] for token in tokens):
        return None
    site = request.build_absolute_uri("/").rstrip("/")
    commands = {
        "Without containers": join_command(site, shown["token"]),
        "With containers": join_command_of_containers(site, shown["token"]),
    }
    return {**shown, "commands": commands}


@require_POST
def host_join_withdraw(request: HttpRequest, token_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    or_404(JoinToken.objects.filter(pk=token_id).first())
    withdraw_join_token(login_user(request), token_id)
    say(request, "The join token was revoked: no further host can join with it.")
    return redirect("hosts:join")
