"""The Capacity page: what capacity is wanted, where fleets stand, and what they were told to do."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from capacity.models import FleetChange, FleetState
from capacity.queries import wanted_capacity

__all__ = ["capacity"]

_MOST_CHANGES = 50


@require_safe
def capacity(request: HttpRequest) -> HttpResponse:
    context = {
        "section": "capacity",
        "crumbs": [("Capacity", None)],
        "wanted": wanted_capacity(timezone.now()),
        "fleets": FleetState.objects.all(),
        "has_file": settings.TIDEPOOL_FLEETS_FILE is not None,
        "changes": FleetChange.objects.all()[:_MOST_CHANGES],
        "currency": settings.TIDEPOOL_CURRENCY,
    }
    return render(request, "capacity/page.html", context)
