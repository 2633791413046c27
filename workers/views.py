"""The page of the machines."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workers.queries import hosts, hosts_live

__all__ = ["host_list", "host_list_live", "host_list_panels"]


@require_safe
def host_list(request: HttpRequest) -> HttpResponse:
    # Its number first: what is published meanwhile comes again, and changes nothing.
    context = {"section": "hosts", "crumbs": [("Hosts", None)], "live": hosts_live(), "hosts": hosts().order_by("name")}
    return render(request, "workers/hosts.html", context)


@require_safe
def host_list_panels(request: HttpRequest) -> HttpResponse:
    """The panels anew, as a part of the page: when a host comes, or is another machine than it was."""
    return render(request, "workers/_hosts.html", {"hosts": hosts().order_by("name")})


@require_safe
def host_list_live(request: HttpRequest) -> JsonResponse:
    return JsonResponse(hosts_live())
