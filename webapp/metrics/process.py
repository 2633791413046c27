"""Metrics of this web process: requests by route, websockets that are open."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector

__all__ = ["REGISTRY", "WEBSOCKETS", "CountRequests"]

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

WEBSOCKETS = Gauge("tidepool_websockets", "Browsers that follow live events at this web process.", registry=REGISTRY)
_REQUESTS = Histogram(
    "tidepool_http_request_seconds",
    "Time until the answer began, by route.",
    ["route", "method", "status"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    registry=REGISTRY,
)
#: Others are strangers' inventions: each would make a series of its own.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class CountRequests:
    """The first of the middleware: its time is all of the time."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = time.perf_counter()
        response = self.get_response(request)
        method = request.method if request.method in _METHODS else "other"
        _REQUESTS.labels(_route(request), method, response.status_code).observe(time.perf_counter() - begun)
        return response


def _route(request: HttpRequest) -> str:
    """The pattern, never the address: there are as many of those as jobs."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return settings.STATIC_URL if request.path.startswith(settings.STATIC_URL) else "none"
