"""Takes what hosts report, many messages at a time, and runs the scheduler's periodic requests."""

import logging
import threading
import time
from typing import Any, cast

import redis
from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from core.broker import connect
from core.process import stop_at_signals, take_turns
from jobs.control.envelopes import Envelopes
from jobs.control.intake import Batch, batch_of
from jobs.control.live_readings import LiveReadings
from jobs.control.reports import store_reports
from jobs.control.steady_hosts import SteadyHosts
from workers.lateness import note_dropped, note_forged

__all__ = ["Command", "Intake", "rest_seconds"]

logger = logging.getLogger(__name__)

#: Messages that one round trip to the broker takes.
BATCH_SIZE = 200
#: Time to wait for a message, and pause after an error.
_WAIT_SECONDS = 1.0
#: Longest rest after a turn, in multiples of the time that it took.
_RESTS = 3.0
#: A turn and its rest take so long at most, unless the turn takes longer by itself.
_ROUND_SECONDS = 0.3


class Command(BaseCommand):
    help = "Take the reports of hosts until SIGTERM or SIGINT; any number may run."

    def handle(self, *args: Any, **options: Any) -> None:
        # Opening a connection takes half as long as storing a report. Each thread of the web server must not keep one.
        connections["default"].settings_dict.update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
        current_app.loader.import_default_modules()
        Intake(stop_at_signals()).run()


class Intake:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._steady = SteadyHosts()
        self._readings = LiveReadings()
        self._envelopes = Envelopes()

    def run(self) -> None:
        """Take messages until told to stop."""
        take_turns(self._stop, self.turn, pause_seconds=_WAIT_SECONDS)

    def turn(self) -> bool:
        """Store the messages that wait, or wait for one. Returns True: the next turn follows at once."""
        messages = take_messages(_WAIT_SECONDS)
        if messages:
            begun = time.monotonic()
            batch = batch_of(messages, self._envelopes.open)
            store(batch, self._steady)
            self._readings.send(batch.reports)
            self._stop.wait(rest_seconds(time.monotonic() - begun))
        return True


def rest_seconds(took: float) -> float:
    """Return how long to rest after a turn that took so many seconds.

    A turn for one report costs as much as one for five: those that come meanwhile share the next one. Where turns are
    long, others wait already, and a rest would only delay them.
    """
    return max(0.0, min(_RESTS * took, _ROUND_SECONDS - took))


def take_messages(seconds: float) -> list[bytes]:
    """Take the oldest messages of the queue; wait for one, at most `seconds`."""
    broker, queue = connect(), settings.CELERY_TASK_DEFAULT_QUEUE
    first = cast(tuple[bytes, bytes] | None, broker.brpop([queue], timeout=seconds))
    if first is None:
        return []
    return [first[1], *(cast(list[bytes] | None, broker.rpop(queue, BATCH_SIZE - 1)) or [])]


def store(batch: Batch, steady: SteadyHosts) -> None:
    """Store the reports of a batch, then carry out the requests among them."""
    if batch.dropped:
        note_dropped(len(batch.dropped))
        logger.warning("dropped %s messages, the first: %s", len(batch.dropped), batch.dropped[0])
    if batch.forged:
        note_forged(len(batch.forged))
        logger.warning("refused %s reports, the first: %s", len(batch.forged), batch.forged[0])
    store_reports(batch.reports, steady)
    for request in batch.requests:
        task = current_app.tasks.get(request.task)
        if task is None:
            logger.warning("dropped a request for the unknown task %s", request.task[:100])
            continue
        try:
            task(*request.args)
        except redis.RedisError:
            raise
        except Exception:  # the next request is another task's
            logger.exception("task=%s failed", request.task)
