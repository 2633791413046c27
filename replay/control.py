"""State changes of replays: a worker claims a replay (see `core.claims`), runs it and stores the result."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from core.claims import Claim, Claims
from replay.models import Replay

__all__ = ["KEPT", "claim_next", "fail", "finish", "note_progress", "prune", "release", "waiting_replays"]

#: Retention of a replay, and maximum number of replays kept.
KEPT, _MAX_KEPT = timedelta(days=35), 100
_State = Replay.State
#: Each progress report renews the claim. The first one comes after reading the period, which can take a while.
_CLAIMS = Claims(
    Replay,
    duration=timedelta(seconds=60),
    waiting={"state": _State.WAITING},
    working={"state": _State.RUNNING},
)


def waiting_replays(now: datetime) -> QuerySet[Replay]:
    """Return the replays that no worker is running, oldest first."""
    return _CLAIMS.free(now)


def claim_next(now: datetime) -> Claim[Replay] | None:
    """Claim the oldest replay that no worker is running."""
    return _CLAIMS.claim_first(waiting_replays(now), now, progress=0)


def note_progress(claim: Claim[Replay], progress: float) -> None:
    """Store the progress, and renew the claim. Raises ClaimLost."""
    _CLAIMS.renew(claim, timezone.now(), progress=min(1.0, progress))


def release(claim: Claim[Replay]) -> None:
    """Release the claim without a result, so that another worker can run the replay at once. Raises ClaimLost."""
    _CLAIMS.release(claim, progress=0)


def finish(claim: Claim[Replay], **columns: Any) -> None:
    """Store the result: the columns `result`, `jobs` and `moments`. Raises ClaimLost."""
    _CLAIMS.finish(claim, state=_State.DONE, progress=1, **columns)


def fail(claim: Claim[Replay], problem: str) -> None:
    """Store the reason of a failure. Raises ClaimLost."""
    _CLAIMS.finish(claim, state=_State.FAILED, problem=problem)


def prune(now: datetime) -> int:
    """Remove replays that are too old or too many, and return their number."""
    kept = Replay.objects.filter(created_at__gte=now - KEPT).order_by("-id").values_list("pk", flat=True)[:_MAX_KEPT]
    return Replay.objects.exclude(pk__in=list(kept)).delete()[0]
