"""`/healthz`: the parts that trainings need and that are not alive. Open to all, so it names parts and nothing else."""

import logging
from collections.abc import Callable
from datetime import timedelta

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from core.broker import connect
from jobs.models import SchedulerLease
from workers.models import Host

__all__ = ["healthz", "missing_parts"]

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    missing = missing_parts()
    if not missing:
        return JsonResponse({"status": "ok", "missing": []})
    return JsonResponse({"status": "unavailable", "missing": missing}, status=503)


def missing_parts() -> list[str]:
    """The parts that do not work, by name."""
    checks: dict[str, Callable[[], bool]] = {
        "database": _database_answers,
        "broker": lambda: bool(connect().ping()),
        "scheduler": SchedulerLease.objects.filter(expires_at__gt=timezone.now()).exists,
        "executor": _executor_reports,
    }
    return [name for name, check in checks.items() if not _passes(name, check)]


def _passes(name: str, check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (DatabaseError, redis.RedisError, OSError) as error:
        logger.warning("health: %s does not answer: %s", name, error)
        return False


def _database_answers() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return bool(cursor.fetchone() == (1,))


def _executor_reports() -> bool:
    since = timezone.now() - timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)
    return Host.objects.exclude(state=Host.State.OFFLINE).filter(last_report_at__gt=since).exists()
