"""The checker's loop: claim the oldest version that waits, check it, again. All that it knows is in the database."""

import logging
import os
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections
from django.utils import timezone
from tidepool.backoff import Backoff

from core.process import still_alive, stop_at_signals
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
        Checker(stop_at_signals()).run()


class Checker:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._backoff = Backoff(first_seconds=2 * _POLL_SECONDS, longest_seconds=30.0)
        self._pruned_at = -_PRUNE_SECONDS

    def run(self) -> None:
        """Until told to stop; a turn that fails is logged, and the next one comes later and later."""
        while not self._stop.is_set():
            try:
                is_idle = not self.turn()
                self._backoff.reset()
                still_alive()
            except Exception:
                self._backoff.add(time.monotonic())
                is_idle = True
                logger.exception("a check failed; the next turn tries again")
                close_old_connections()
            if is_idle:
                self._stop.wait(self._backoff.pause_seconds or _POLL_SECONDS)

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
        """Asked all the time while a version is read, which may take hours."""
        still_alive()
        return self._stop.is_set()

    def _prune(self) -> None:
        if time.monotonic() - self._pruned_at < _PRUNE_SECONDS:
            return
        self._pruned_at = time.monotonic()
        if count := prune(timezone.now()):
            logger.info("%s uploads that nobody went on with are removed", count)
