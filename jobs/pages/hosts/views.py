"""The page of the machines: drain, resume, remove, restore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from core.errors import UserError
from core.live import CLUSTER, current_seqs
from core.notices import Undo, say
from core.pages import login_user, or_404
from core.roles import require_cluster_admin
from jobs.insight.cluster import IDLE_AFTER_SECONDS
from jobs.insight.hosts import host_panels, idle_slots, question, removed_hosts
from workers import actions
from workers.models import Host
from workers.queries import hosts_live

__all__ = ["LIST_CRUMB", "host_act", "host_list", "host_list_live", "host_question"]

LIST_CRUMB = ("Hosts", "/hosts/")


@dataclass(frozen=True)
class _Deed:
    act: Callable[[str, Any], None]
    done: str
    #: The deed that takes it back.
    undo: str | None


_DEEDS = {
    "drain": _Deed(actions.drain_host, "{} is being drained: nothing new starts there.", "resume"),
    "resume": _Deed(actions.resume_host, "{} is in service again.", "drain"),
    "remove": _Deed(actions.remove_host, "{} is removed.", "restore"),
    "restore": _Deed(actions.restore_host, "{} is back in the lists.", None),
}


@require_safe
def host_list(request: HttpRequest) -> HttpResponse:
    # The numbers first: what is published meanwhile comes again, and changes nothing.
    live = hosts_live() | {"cluster_seq": current_seqs([CLUSTER])[CLUSTER]}
    user = login_user(request)
    panels = host_panels(user)
    context = {
        "section": "hosts",
        "crumbs": [("Hosts", None)],
        "live": live,
        "panels": panels,
        "idle": idle_slots(panels),
        "idle_after_seconds": round(IDLE_AFTER_SECONDS),
        "may_change": user.is_staff,
        "removed": removed_hosts() if user.is_staff else [],
    }
    return render(request, "jobs/hosts/page.html", context)


@require_safe
def host_list_live(request: HttpRequest) -> JsonResponse:
    return JsonResponse(hosts_live())


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
    deed = _DEEDS[verb]
    try:
        deed.act(host.name, login_user(request))
    except UserError as error:
        messages.error(request, error.message)
    else:
        undo = Undo(reverse("hosts:act", args=[host.pk, deed.undo]), {}) if deed.undo else None
        say(request, deed.done.format(host.name), undo=undo)
    return redirect("hosts:list")
