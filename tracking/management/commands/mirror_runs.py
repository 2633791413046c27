"""The mirror's loop. All that it knows is in the database."""

import logging
import os
import threading
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections
from django.utils import timezone
from tidepool.backoff import Backoff

from core.process import still_alive, stop_at_signals
from tracking.away import note
from tracking.mirror import Mirror
from tracking.upstream import Away, MlflowServer

__all__ = ["Command", "mirror_until"]

logger = logging.getLogger(__name__)

_TURN_SECONDS = 2.0
#: Nothing waits for it.
_NICENESS = 10


class Command(BaseCommand):
    help = "Keep MLflow's runs like the trainings until SIGTERM or SIGINT."

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.TIDEPOOL_MLFLOW_SOCKET:
            raise CommandError("Set TIDEPOOL_MLFLOW_SOCKET to the path of the socket that MLflow listens on.")
        os.nice(_NICENESS)
        mirror_until(stop_at_signals(), Mirror(MlflowServer()))


def mirror_until(stop: threading.Event, mirror: Mirror) -> None:
    """Turn after turn; while MLflow is away they come later and later, up to one in 30 s."""
    backoff = Backoff(first_seconds=_TURN_SECONDS, longest_seconds=30.0)
    is_away = False
    while not stop.is_set():
        try:
            has_more = mirror.turn(timezone.now())
            note(timezone.now(), answers=True)
            backoff.reset()
            if is_away:
                logger.info("MLflow answers again")
            is_away = False
        except Away as error:
            has_more = False
            backoff.add(time.monotonic())
            note(timezone.now(), answers=False)
            if not is_away:
                logger.warning("%s; what is to be sent waits", error)
            is_away = True
        except Exception:
            has_more = False
            backoff.add(time.monotonic())
            logger.exception("a turn of the mirror failed; the next one tries again")
            close_old_connections()
        still_alive()
        if not has_more:
            stop.wait(backoff.pause_seconds or _TURN_SECONDS)
