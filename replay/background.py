"""The background worker's task of playing replays, one after the other. Its state is in the database."""

import logging
import threading
import time

from django.utils import timezone
from tidepool.backoff import Interval

from core.claims import Claim, ClaimLost
from core.process import still_alive
from replay.control import claim_next, fail, finish, give_back, note_progress, prune, waiting_replays
from replay.models import Replay

__all__ = ["Replays"]

logger = logging.getLogger(__name__)

#: A replay takes minutes: the worker looks for one less often than for a check.
_LOOK_SECONDS = 0.5
_PRUNE_SECONDS = 3600.0
_PROGRESS_SECONDS = 0.4


class _Stopped(Exception):
    """The process was asked to end."""


class Replays:
    """Plays replays, and removes old ones."""

    def __init__(self) -> None:
        self._looking = Interval(_LOOK_SECONDS)
        self._pruning = Interval(_PRUNE_SECONDS)
        self._progress = Interval(_PROGRESS_SECONDS)

    def has_work(self) -> bool:
        """Return whether a replay waits, or old ones are to be pruned."""
        now = time.monotonic()
        if not self._looking.is_due(now):
            return False
        return self._pruning.is_due(now) or waiting_replays(timezone.now()).exists()

    def run(self, stop: threading.Event) -> None:
        """Prune old replays, then play until none waits."""
        if count := prune(timezone.now()):
            logger.info("%s old replays are removed", count)
        while not stop.is_set() and self.play_next(stop):
            pass

    def play_next(self, stop: threading.Event) -> bool:
        """Play the oldest replay that waits; return False if there was none."""
        claim = claim_next(timezone.now())
        if claim is None:
            return False
        try:
            self._play(claim, stop)
        except _Stopped:
            give_back(claim)
        except ClaimLost as error:
            logger.info("%s", error)
        return True

    def _play(self, claim: Claim[Replay], stop: threading.Event) -> None:
        # The worker itself does without what only a replay needs.
        from replay.player import TooMuch, replayed

        try:
            found = replayed(claim.row, timezone.now(), lambda part: self._note_progress(claim, part, stop))
        except TooMuch as error:
            fail(claim, str(error))
        except (_Stopped, ClaimLost):
            raise
        except Exception:
            # A second attempt would fail in the same way.
            logger.exception("replay=%s failed", claim.row.pk)
            fail(claim, "The replay failed by an error of Tidepool: the background worker's log has the traceback.")
        else:
            finish(claim, **found._asdict())
            logger.info("replay=%s trainings=%s cpu=%s s", claim.row.pk, len(found.jobs), found.result["cpu_seconds"])

    def _note_progress(self, claim: Claim[Replay], part: float, stop: threading.Event) -> None:
        still_alive()
        if stop.is_set():
            raise _Stopped
        if self._progress.is_due(time.monotonic()):
            note_progress(claim, part)
