"""The life of a replay: somebody claims it, plays it and stores what came of it, as with checks of datasets."""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from jobs.models import Replay

__all__ = ["KEPT", "Claim", "ClaimLost", "claim_next", "fail", "finish", "give_back", "note_progress", "prune"]

#: A process that has said nothing for so long is taken for dead; reading a long window takes a while.
_CLAIM = timedelta(seconds=60)
KEPT, _MOST = timedelta(days=35), 100
_State = Replay.State


class ClaimLost(Exception):
    """Somebody else plays this one now, or it was removed."""


@dataclass(frozen=True)
class Claim:
    replay: Replay
    token: str


def claim_next(now: datetime) -> Claim | None:
    """The oldest one that nobody plays."""
    free = Q(state=_State.WAITING) | Q(state=_State.RUNNING, claimed_until__lt=now)
    for pk in Replay.objects.filter(free).order_by("id").values_list("pk", flat=True)[:5]:
        token = secrets.token_hex(8)
        values = {"state": _State.RUNNING, "claim": token, "claimed_until": now + _CLAIM, "progress": 0}
        if Replay.objects.filter(free, pk=pk).update(**values):
            return Claim(Replay.objects.get(pk=pk), token)
    return None


def note_progress(claim: Claim, progress: float) -> None:
    """Say how far it is, and keep the claim. Raises ClaimLost."""
    _write(claim, progress=min(1.0, progress), claimed_until=timezone.now() + _CLAIM)


def give_back(claim: Claim) -> None:
    """Stop without a result: the next process takes it at once."""
    _write(claim, state=_State.WAITING, claim="", claimed_until=None, progress=0)


def finish(claim: Claim, **columns: Any) -> None:
    """columns: `result`, `jobs` and `moments`."""
    _write(claim, state=_State.DONE, claim="", claimed_until=None, progress=1, **columns)


def fail(claim: Claim, problem: str) -> None:
    _write(claim, state=_State.FAILED, claim="", claimed_until=None, problem=problem)


def _write(held: Claim, /, **values: Any) -> None:
    if not Replay.objects.filter(pk=held.replay.pk, state=_State.RUNNING, claim=held.token).update(**values):
        raise ClaimLost(f"replay {held.replay.pk} is not played here any more")


def prune(now: datetime) -> int:
    """Remove those that are old, or too many; returns how many."""
    kept = Replay.objects.filter(created_at__gte=now - KEPT).order_by("-id").values_list("pk", flat=True)[:_MOST]
    return Replay.objects.exclude(pk__in=list(kept)).delete()[0]
