"""The loop that plays replays, one after the other. All that it knows is in the database."""

import logging
import os
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone
from tidepool.backoff import Interval

from core.process import still_alive, stop_at_signals, take_turns
from jobs.control.replays import Claim, ClaimLost, claim_next, fail, finish, give_back, note_progress, prune
from jobs.insight.replay import TooMuch, replayed

__all__ = ["Command", "Player"]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_PRUNE_SECONDS = 3600.0
_TELL_SECONDS = 0.4
#: Nobody's trainings or pages wait for it.
_NICENESS = 10


class Command(BaseCommand):
    help = "Play replays of the past until SIGTERM or SIGINT. Any number may run: each replay is played by one."

    def handle(self, *args: Any, **options: Any) -> None:
        os.nice(_NICENESS)
        stop = stop_at_signals()
        take_turns(stop, Player(stop).turn, pause_seconds=_POLL_SECONDS)


class _Stopped(Exception):
    """The process was asked to end."""


class Player:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._pruning = Interval(_PRUNE_SECONDS)
        self._telling = Interval(_TELL_SECONDS)

    def turn(self) -> bool:
        """Play one, if one waits."""
        self._prune()
        claim = claim_next(timezone.now())
        if claim is None:
            return False
        try:
            self._play(claim)
        except _Stopped:
            give_back(claim)
        except ClaimLost as error:
            logger.info("%s", error)
        return True

    def _play(self, claim: Claim) -> None:
        try:
            found = replayed(claim.replay, timezone.now(), lambda part: self._tell(claim, part))
        except TooMuch as error:
            fail(claim, str(error))
        except (_Stopped, ClaimLost):
            raise
        except Exception:
            # Played again, it would fail again.
            logger.exception("replay=%s failed", claim.replay.pk)
            fail(claim, "The replay made a mistake, which is in the log of the process that plays: tell its makers.")
        else:
            finish(claim, **found._asdict())
            logger.info(
                "replay=%s trainings=%s cpu=%s s", claim.replay.pk, len(found.jobs), found.result["cpu_seconds"]
            )

    def _tell(self, claim: Claim, part: float) -> None:
        still_alive()
        if self._stop.is_set():
            raise _Stopped
        if self._telling.is_due(time.monotonic()):
            note_progress(claim, part)

    def _prune(self) -> None:
        if self._pruning.is_due(time.monotonic()) and (count := prune(timezone.now())):
            logger.info("%s old replays are removed", count)
