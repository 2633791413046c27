"""Running replays in the background worker, one at a time. All state is in the database."""

import logging
import threading
import time

from django.utils import timezone
from tidepool.backoff import Interval

from core.claims import Claim, ClaimLost
from core.process import still_alive
from replay.control import claim_next, fail, finish, note_progress, prune, release, waiting_replays
from replay.models import Replay

__all__ = ["ReplayWorker"]

logger = logging.getLogger(__name__)

#: Interval of queries for waiting replays. Replays take minutes, so a small delay is acceptable.
_POLL_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
_PROGRESS_SECONDS = 0.4


class _Stopped(Exception):
    """The worker process is stopping."""


class ReplayWorker:
    """Runs waiting replays, and removes old ones."""

    def __init__(self) -> None:
        self._polling = Interval(_POLL_SECONDS)
        self._pruning = Interval(_PRUNE_SECONDS)
        self._progress = Interval(_PROGRESS_SECONDS)

    def has_work(self) -> bool:
        """Return whether a replay is waiting, or pruning is due."""
        now = time.monotonic()
        if not self._polling.is_due(now):
            return False
        return self._pruning.is_due(now) or waiting_replays(timezone.now()).exists()

    def run(self, stop: threading.Event) -> None:
        """Prune old replays, then run replays until none is waiting."""
        if count := prune(timezone.now()):
            logger.info("removed %s old replays", count)
        while not stop.is_set() and self.run_next(stop):
            pass

    def run_next(self, stop: threading.Event) -> bool:
        """Run the oldest waiting replay. Returns False if there is none."""
        claim = claim_next(timezone.now())
        if claim is None:
            return False
        try:
            self._run(claim, stop)
        except _Stopped:
            release(claim)
        except ClaimLost as error:
            logger.info("%s", error)
        return True

    def _run(self, claim: Claim[Replay], stop: threading.Event) -> None:
        # Imported late: only replays need these modules and their memory.
        from replay.player import LimitExceeded, run_replay

        try:
            found = run_replay(claim.row, timezone.now(), lambda part: self._note_progress(claim, part, stop))
        except LimitExceeded as error:
            fail(claim, str(error))
        except (_Stopped, ClaimLost):
            raise
        except Exception:
            # A second attempt would fail in the same way.
            logger.exception("replay=%s failed", claim.row.pk)
            fail(claim, "The replay failed because of an error in Tidepool: see the log of the background worker.")
        else:
            finish(claim, **found._asdict())
            logger.info("replay=%s trainings=%s cpu=%s s", claim.row.pk, len(found.jobs), found.result["cpu_seconds"])

    def _note_progress(self, claim: Claim[Replay], part: float, stop: threading.Event) -> None:
        still_alive()
        if stop.is_set():
            raise _Stopped
        if self._progress.is_due(time.monotonic()):
            note_progress(claim, part)
