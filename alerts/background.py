"""The background worker's task of alerts: creates alerts and sends them. Its state is in the database."""

import os
import threading
import time

from django.utils import timezone
from tidepool.backoff import Interval

from alerts import detectors, outbox, study_detectors
from alerts.loop import AlertLoop
from core.process import take_turns

__all__ = ["Alerts"]

_TURN_SECONDS = 2.0
#: Interval at which the loop runs, and prunes old messages, even if no user has a rule.
_PRUNE_SECONDS = 3600.0


class Alerts:
    """Runs the alert loop while users have rules or messages wait. Several processes may run it."""

    def __init__(self) -> None:
        self._looking = Interval(_TURN_SECONDS)
        self._pruning = Interval(_PRUNE_SECONDS)

    def has_work(self) -> bool:
        """Return whether the loop has work. Without rules, events are skipped: a new rule only applies to later
        ones."""
        now = time.monotonic()
        if not self._looking.is_due(now):
            return False
        if self._pruning.is_due(now) or _is_needed():
            return True
        outbox.skip_events(detectors.newest_event(), study_detectors.newest_event())
        return False

    def run(self, stop: threading.Event) -> None:
        """Decide and send until the event is set; sets it once there are neither rules nor messages."""
        # A proxy would connect to addresses that are forbidden here, unseen by `alerts.connection_guard`.
        os.environ["NO_PROXY"] = "*"
        loop = AlertLoop()

        def turn() -> bool:
            has_more = loop.turn(timezone.now())
            if not has_more and not _is_needed():
                stop.set()
            return has_more

        take_turns(stop, turn, pause_seconds=_TURN_SECONDS)


def _is_needed() -> bool:
    return detectors.has_rules() or outbox.has_unsent()
