"""The loop that decides about alerts and sends them. All that it knows is in the database."""

import os
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from alerts.loop import AlertLoop
from core.process import stop_at_signals, take_turns

__all__ = ["Command"]

_TURN_SECONDS = 2.0
#: No training and no page waits for it.
_NICENESS = 10


class Command(BaseCommand):
    help = "Tell users what their alert rules ask for until SIGTERM or SIGINT. Several may run."

    def handle(self, *args: Any, **options: Any) -> None:
        os.nice(_NICENESS)
        # A proxy would connect where we may not, out of our sight.
        os.environ["NO_PROXY"] = "*"
        loop = AlertLoop()
        take_turns(stop_at_signals(), lambda: loop.turn(timezone.now()), pause_seconds=_TURN_SECONDS)
