"""The background worker's task of measuring how much room trainings take on the disk. Its state is in the database."""

import threading
import time

from django.utils import timezone
from tidepool.backoff import Interval

from core.process import still_alive
from jobs.control.disk_use import due, measure

__all__ = ["DiskMeasurements"]

#: Seconds between two looks for a training to measure.
_LOOK_SECONDS = 30.0


class DiskMeasurements:
    def __init__(self) -> None:
        self._looking = Interval(_LOOK_SECONDS)

    def has_work(self) -> bool:
        return self._looking.is_due(time.monotonic()) and due(timezone.now()).exists()

    def run(self, stop: threading.Event) -> None:
        """Measure one training after the other until none is due."""

        def is_to_stop() -> bool:
            still_alive()
            return stop.is_set()

        while not is_to_stop():
            job = due(timezone.now()).select_related("owner", "model__model").first()
            if job is None or not measure(job, timezone.now(), is_to_stop):
                return
