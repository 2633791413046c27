"""The page of the machines."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workers.queries import hosts, hosts_live

__all__ = ["host_list", "host_list_live"]


@require_safe
def host_list(request: HttpRequest) -> HttpResponse:
    context = {"section": "hosts", "crumbs": [("Hosts", None)], "hosts": hosts().order_by("name"), "live": hosts_live()}
    return render(request, "workers/hosts.html", context)


@require_safe
def host_list_live(request: HttpRequest) -> JsonResponse:
    return JsonResponse(hosts_live())
