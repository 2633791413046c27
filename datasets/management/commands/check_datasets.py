"""The checker's loop: claim the oldest version that waits, check it, again. All that it knows is in the database."""

import logging
import os
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone
from tidepool.backoff import Interval

from core.process import still_alive, stop_at_signals, take_turns
from core.uploads import prune
from datasets.control import ClaimLost, Stopped, check, claim_next, give_back

__all__ = ["Checker", "Command"]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_PRUNE_SECONDS = 3600.0
#: Reading whole disks must not slow down the site or the scheduler.
_NICENESS = 10


class Command(BaseCommand):
    help = "Check registered datasets until SIGTERM or SIGINT. Any number may run: each version is checked by one."

    def handle(self, *args: Any, **options: Any) -> None:
        os.nice(_NICENESS)
        stop = stop_at_signals()
        take_turns(stop, Checker(stop).turn, pause_seconds=_POLL_SECONDS)


class Checker:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._pruning = Interval(_PRUNE_SECONDS)

    def turn(self) -> bool:
        """Check one version, if one waits."""
        self._prune()
        claim = claim_next(timezone.now())
        if claim is None:
            return False
        try:
            version = check(claim, self._asked_to_stop)
            logger.info("dataset=%s version=%s state=%s", version.dataset_id, version.number, version.state)
        except Stopped:
            give_back(claim)
        except ClaimLost as error:
            logger.warning("dataset=%s %s", claim.version.dataset_id, error)
        return True

    def _asked_to_stop(self) -> bool:
        """Return whether to stop. Called all the time while a version is read, which may take hours."""
        still_alive()
        return self._stop.is_set()

    def _prune(self) -> None:
        if self._pruning.is_due(time.monotonic()) and (count := prune(timezone.now())):
            logger.info("%s uploads that nobody went on with are removed", count)
