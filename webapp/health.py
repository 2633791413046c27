"""`/healthz`: the version of the site, and the parts that trainings need and that are not alive.

The address needs no log-in, so the response names parts and gives no details. Trouble that stops no training leaves the
status at 200: reports that cannot be stored, and an MLflow server that does not answer.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from tidepool.version import VERSION

from core.broker import connect
from core.text import plural
from insights.unstored import Unstored, unstored
from jobs.models import SchedulerLease
from studies.copying import copy_problem
from tracking.availability import mlflow_away_since
from workers.lateness import is_behind, reports_delay, taken_until
from workers.models import Host

__all__ = ["Trouble", "healthz", "missing_parts", "troubles"]

logger = logging.getLogger(__name__)

_BEFORE_CONTROL = frozenset({"database", "broker", "scheduler"})


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    missing = missing_parts()
    parts = {} if "database" in missing else _parts(timezone.now())
    if not missing:
        return JsonResponse({"status": "ok", "version": VERSION, "missing": [], **parts})
    return JsonResponse({"status": "unavailable", "version": VERSION, "missing": missing, **parts}, status=503)


def _parts(now: datetime) -> dict[str, Any]:
    """Return what else there is to say: troubles, and the seconds by which the control plane is behind."""
    delay = reports_delay(now)
    found: dict[str, Any] = {each.part: each.state for each in troubles(now)}
    return found if delay is None else {**found, "reports_delay_seconds": round(delay.total_seconds(), 1)}


@dataclass(frozen=True)
class Trouble:
    """A problem for an administrator that does not stop trainings."""

    part: str
    #: Machine-readable code.
    state: str
    sentence: str
    #: URL of the page with details; "": none.
    path: str = ""
    since: datetime | None = None


def troubles(now: datetime) -> list[Trouble]:
    found = []
    if not_stored := unstored(now):
        found.append(Trouble("reports", "not stored", _sentence(not_stored), reverse("hosts:list")))
    if away_since := mlflow_away_since(now):
        sentence = (
            "MLflow, or its mirror process, does not answer. Trainings continue, and their logged values arrive later. "
            "See mlflow.log and mirror.log."
        )
        found.append(Trouble("tracking", "away", sentence, since=away_since))
    if copy := copy_problem():
        sentence = (
            f"Studies are not copied to Optuna's database, which is tried again every half minute: {copy.problem}"
        )
        path = reverse("studies:detail", args=[copy.pk])
        found.append(Trouble("optuna_copies", "failing", sentence, path, since=copy.failing_since))
    return found


def _sentence(not_stored: Unstored) -> str:
    count = len(not_stored.entries) + len(not_stored.hosts)
    return plural(
        count,
        "A report of a host could not be stored in the last day: the Hosts page shows it and the reason.",
        "{count} things that hosts reported in the last day could not be stored: Hosts says which, and why.",
    )


def missing_parts() -> list[str]:
    """Return the parts that do not work, by name."""
    checks: dict[str, Callable[[], bool]] = {
        "database": _database_answers,
        "broker": lambda: bool(connect().ping()),
        "scheduler": SchedulerLease.objects.filter(expires_at__gt=timezone.now()).exists,
        "control": _reports_are_taken,
        "executor": _executor_reports,
    }
    missing = [name for name, check in checks.items() if not _passes(name, check)]
    # Without the others, reports cannot be taken, or nobody measures whether they are.
    return [name for name in missing if name != "control" or not _BEFORE_CONTROL & set(missing)]


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


def _reports_are_taken() -> bool:
    delay = reports_delay(timezone.now())
    return delay is None or not is_behind(delay) or delay <= _lease()


def _executor_reports() -> bool:
    """Return whether a host was heard before reports began to wait."""
    now = timezone.now()
    since = min(now, taken_until() or now) - _lease()
    return Host.objects.exclude(state=Host.State.OFFLINE).filter(last_report_at__gt=since).exists()


def _lease() -> timedelta:
    return timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)
