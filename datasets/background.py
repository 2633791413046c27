"""The background worker's task of checking datasets, one version after the other. Its state is in the database."""

import logging
import threading
import time

from django.utils import timezone
from tidepool.backoff import Interval

from core.claims import ClaimLost
from core.process import still_alive
from core.uploads import prune
from datasets.inspection_queue import Stopped, check, claim_next, give_back, waiting_versions

__all__ = ["DatasetChecks"]

logger = logging.getLogger(__name__)

_PRUNE_SECONDS = 3600.0


class DatasetChecks:
    """Checks registered datasets, and removes uploads that were given up."""

    def __init__(self) -> None:
        self._pruning = Interval(_PRUNE_SECONDS)

    def has_work(self) -> bool:
        """Return whether a version waits for its check, or uploads are to be pruned."""
        return self._pruning.is_due(time.monotonic()) or waiting_versions(timezone.now()).exists()

    def run(self, stop: threading.Event) -> None:
        """Check versions until none waits, then prune uploads."""
        while not stop.is_set() and self.check_next(stop):
            pass
        if not stop.is_set() and (count := prune(timezone.now())):
            logger.info("%s abandoned uploads are removed", count)

    def check_next(self, stop: threading.Event) -> bool:
        """Check the oldest version that waits; return False if there was none."""
        claim = claim_next(timezone.now())
        if claim is None:
            return False
        try:
            version = check(claim, lambda: _is_to_stop(stop))
            logger.info("dataset=%s version=%s state=%s", version.dataset_id, version.number, version.state)
        except Stopped:
            give_back(claim)
        except ClaimLost as error:
            logger.warning("dataset=%s %s", claim.row.dataset_id, error)
        return True


def _is_to_stop(stop: threading.Event) -> bool:
    """Return whether to stop. Called often while a version is read, which may take hours."""
    still_alive()
    return stop.is_set()
