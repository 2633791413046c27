"""Pages of what trainings require: the hosts that have it, the output of their builds, and what administrators do."""

import os
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from tidepool.safe_open import open_below

from core.errors import NotFound
from core.pages import done, login_user, or_404, say
from core.roles import require_cluster_admin
from jobs.actions.prepared import build_again, build_ahead, forget_environment, keep_environment
from jobs.models import HostEnvironment, RequiredEnvironment
from jobs.pages.environments.views import LIST_CRUMB
from jobs.queries.environments import visible_environments
from jobs.queries.prepared import find_prepared, title_of
from workers.models import Host

__all__ = [
    "environment_prepare",
    "prepared_again",
    "prepared_hosts",
    "prepared_keep",
    "prepared_log",
    "prepared_page",
    "prepared_remove",
]

#: Bytes of a log's end that are shown.
_LOG_BYTES = 128 * 1024


@require_safe
def prepared_page(request: HttpRequest, environment_id: int) -> HttpResponse:
    return render(request, "jobs/environments/prepared.html", _context(request, environment_id))


@require_safe
def prepared_hosts(request: HttpRequest, environment_id: int) -> HttpResponse:
    return render(request, "jobs/environments/_hosts.html", _context(request, environment_id))


@require_safe
def prepared_log(request: HttpRequest, environment_id: int, host_id: int) -> HttpResponse:
    """Show the end of the output of the newest build on a host."""
    row = _environment(request, environment_id)
    there = or_404(HostEnvironment.objects.select_related("host").filter(environment=row, host=host_id).first())
    context = {
        "section": "environments",
        "crumbs": [
            LIST_CRUMB,
            (title_of(row), reverse("environments:prepared", args=[row.pk])),
            (there.host.name, None),
        ],
        "there": there,
        "text": _text_of(Path(there.log)),
    }
    part = "hx-request" in request.headers
    return render(request, f"jobs/environments/{'_' if part else ''}log.html", context)


@require_POST
def environment_prepare(request: HttpRequest, environment_id: int) -> HttpResponse:
    """Have hosts prepare a named environment."""
    require_cluster_admin(request.user)
    named = or_404(visible_environments(request.user).filter(pk=environment_id).first())
    group = request.POST.get("resource_group", "")
    if done(request, lambda: build_ahead(named, login_user(request), group)):
        say(request, f"Hosts prepare the environment {named.name}, unless they have it already.")
    return redirect("environments:change", named.pk)


@require_POST
def prepared_again(request: HttpRequest, environment_id: int) -> HttpResponse:
    if done(request, lambda: build_again(environment_id, login_user(request))):
        say(request, "The hosts build it again.")
    return redirect("environments:prepared", environment_id)


@require_POST
def prepared_keep(request: HttpRequest, environment_id: int) -> HttpResponse:
    is_pinned = request.POST.get("keep") == "yes"
    if done(request, lambda: keep_environment(environment_id, login_user(request), is_pinned=is_pinned)):
        say(request, "The hosts keep it." if is_pinned else "The hosts keep it for a week after its last training.")
    return redirect("environments:prepared", environment_id)


@require_POST
def prepared_remove(request: HttpRequest, environment_id: int) -> HttpResponse:
    if not done(request, lambda: forget_environment(environment_id, login_user(request))):
        return redirect("environments:prepared", environment_id)
    say(request, "The hosts remove it.")
    return redirect("environments:list")


def _environment(request: HttpRequest, environment_id: int) -> RequiredEnvironment:
    require_cluster_admin(request.user)
    try:
        return find_prepared(environment_id)
    except NotFound:
        return or_404(None)


def _context(request: HttpRequest, environment_id: int) -> dict[str, object]:
    row = _environment(request, environment_id)
    hosts = list(row.hosts.all())
    moving = {HostEnvironment.State.ASKED, HostEnvironment.State.BUILDING}
    return {
        "section": "environments",
        "crumbs": [LIST_CRUMB, (title_of(row), None)],
        "title": title_of(row),
        "environment": row,
        "named": list(row.names.all()),
        "hosts": hosts,
        "is_moving": any(one.state in moving and one.host.state != Host.State.OFFLINE for one in hosts),
    }


def _text_of(log: Path) -> str:
    """Return the end of a log in the home; a training's folder may have a link in its place, which is not followed."""
    home = Path(settings.TIDEPOOL_HOME)
    descriptor = open_below(home, log.relative_to(home).parts) if log.is_relative_to(home) else None
    if descriptor is None:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _LOG_BYTES))
        return file.read().decode(errors="replace")
