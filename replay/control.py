"""The life of a replay: a worker claims it, plays it and stores the result. Claims are those of `core.claims`."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from core.claims import Claim, Claims
from replay.models import Replay

__all__ = ["KEPT", "claim_next", "fail", "finish", "give_back", "note_progress", "prune", "waiting_replays"]

KEPT, _MOST = timedelta(days=35), 100
_State = Replay.State
#: A replay renews its claim with its progress; until the first progress it reads a window, which may take a while.
_CLAIMS = Claims(
    Replay,
    duration=timedelta(seconds=60),
    waiting={"state": _State.WAITING},
    working={"state": _State.RUNNING},
)


def waiting_replays(now: datetime) -> QuerySet[Replay]:
    """Return the replays that no worker plays, the oldest first."""
    return _CLAIMS.free(now)


def claim_next(now: datetime) -> Claim[Replay] | None:
    """Claim the oldest replay that no worker plays."""
    return _CLAIMS.claim_first(waiting_replays(now), now, progress=0)


def note_progress(claim: Claim[Replay], progress: float) -> None:
    """Store the progress, and renew the claim. Raises ClaimLost."""
    _CLAIMS.renew(claim, timezone.now(), progress=min(1.0, progress))


def give_back(claim: Claim[Replay]) -> None:
    """Stop without a result: the next worker plays the replay at once. Raises ClaimLost."""
    _CLAIMS.release(claim, progress=0)


def finish(claim: Claim[Replay], **columns: Any) -> None:
    """Store the result: the columns `result`, `jobs` and `moments`. Raises ClaimLost."""
    _CLAIMS.finish(claim, state=_State.DONE, progress=1, **columns)


def fail(claim: Claim[Replay], problem: str) -> None:
    """Store why the replay cannot be played. Raises ClaimLost."""
    _CLAIMS.finish(claim, state=_State.FAILED, problem=problem)


def prune(now: datetime) -> int:
    """Remove replays that are old or too many; return how many."""
    kept = Replay.objects.filter(created_at__gte=now - KEPT).order_by("-id").values_list("pk", flat=True)[:_MOST]
    return Replay.objects.exclude(pk__in=list(kept)).delete()[0]
