"""The background worker's task of studies: gives each active study its turns. Its state is in the database."""

import logging
import threading
import time
from collections.abc import Sequence

from django.utils import timezone
from tidepool.backoff import Interval

from core.process import take_turns
from studies.control.controller import active_studies, take_turn

__all__ = ["StudyController"]

logger = logging.getLogger(__name__)

_TURN_SECONDS = 0.5
#: Seconds between two looks for an active study while there is none.
_LOOK_SECONDS = 1.0
#: Seconds without an active study after which the process ends, and gives its memory back.
_IDLE_SECONDS = 10.0


class StudyController:
    """Runs the turns of active studies. Several processes may run it: each turn claims its study."""

    def __init__(self) -> None:
        self._looking = Interval(_LOOK_SECONDS)

    def has_work(self) -> bool:
        return self._looking.is_due(time.monotonic()) and active_studies().exists()

    def run(self, stop: threading.Event) -> None:
        """Give turns until the event is set; sets it once no study has been active for a while."""
        last_active = time.monotonic()

        def turn() -> bool:
            nonlocal last_active
            active = list(active_studies().values_list("pk", flat=True))
            if active:
                last_active = time.monotonic()
            elif time.monotonic() - last_active > _IDLE_SECONDS:
                stop.set()
            return _turns_of(active)

        take_turns(stop, turn, pause_seconds=_TURN_SECONDS)


def _turns_of(studies: Sequence[int]) -> bool:
    """Give each study its turn; return whether any has changed. Raises the last error once all have had their turn."""
    has_changed, failure = False, None
    for study in studies:
        try:
            has_changed = take_turn(study, timezone.now()) or has_changed
        except Exception as error:
            logger.exception("study=%s the turn failed; it is tried again", study)
            failure = error
    if failure is not None:
        raise failure
    return has_changed
