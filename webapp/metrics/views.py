"""`/metrics`, for Prometheus with a token of its own and for administrators: it names hosts and groups."""

from __future__ import annotations

import hmac

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from accounts.authentication import BearerToken
from core.roles import Role, role_of
from webapp.metrics.cluster import ClusterCollector
from webapp.metrics.history import History
from webapp.metrics.process import REGISTRY

__all__ = ["metrics"]

_history = History(REGISTRY)
REGISTRY.register(ClusterCollector())


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    if not _may_read(request):
        sentence = "Send the metrics token, or an administrator's: Authorization: Bearer <token>.\n"
        return HttpResponse(sentence, status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"})
    _history.look()
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    own = settings.TIDEPOOL_METRICS_TOKEN
    if own and hmac.compare_digest(given, f"Bearer {own}".encode()):
        return True
    try:
        found = BearerToken().authenticate(Request(request))
    except APIException:
        return False
    return role_of(found[0] if found else request.user) == Role.CLUSTER_ADMIN
