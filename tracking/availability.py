"""Whether MLflow answers, as the mirror notes it down: no page and no /healthz waits for MLflow to know."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Value
from django.db.models.functions import Coalesce

from tracking.models import MirrorState

__all__ = ["mlflow_away_since", "note"]

#: The mirror asks each 30 s while MLflow is away, and more often otherwise: a longer silence is its own.
_SILENT = timedelta(minutes=5)
#: A note as good as the former is written no more often.
_EVERY = timedelta(seconds=10)


def mlflow_away_since(now: datetime) -> datetime | None:
    """Since when MLflow, or the mirror that asks it, has not answered; None: it answers, or the site has none."""
    if not settings.TIDEPOOL_MLFLOW_SOCKET:
        return None
    state = MirrorState.objects.first()
    if state is None:  # both have just begun
        return None
    return state.away_since or (state.asked_at if now - state.asked_at > _SILENT else None)


def note(now: datetime, *, answers: bool) -> None:
    """Note that MLflow was asked."""
    state = MirrorState.objects.first()
    if state is None:
        MirrorState.objects.get_or_create(defaults={"asked_at": now, "away_since": None if answers else now})
        return
    if answers == (state.away_since is None) and now - state.asked_at < _EVERY:
        return
    since = None if answers else Coalesce(F("away_since"), Value(now))
    MirrorState.objects.update(asked_at=now, away_since=since)
