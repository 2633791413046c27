"""The fair-share page: entitlements, holdings, and which training waits for which."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from core.live import CLUSTER, GROUPS, current_seqs
from jobs.insight.fair_share import fair_share_page

__all__ = ["fair_share"]


@require_safe
def fair_share(request: HttpRequest) -> HttpResponse:
    seqs = current_seqs((CLUSTER, GROUPS))
    context = {"section": "fair-share", "crumbs": [("Fair share", None)], "seqs": seqs}
    return render(request, "jobs/groups/fair_share.html", {**context, "page": fair_share_page(request.user)})
