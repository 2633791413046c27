"""The background worker's task of mirroring trainings to MLflow. Its state is in the database."""

import logging
import threading
import time
from contextlib import suppress
from datetime import timedelta

from django.db import close_old_connections
from django.utils import timezone
from tidepool.backoff import Backoff, Interval

from core.claims import Claim, ClaimLost, Claims
from core.process import still_alive
from tracking.availability import note
from tracking.mirror import Mirror
from tracking.models import MirrorState
from tracking.upstream import Away, MlflowServer

__all__ = ["MirrorLoop", "run_mirror"]

logger = logging.getLogger(__name__)

_TURN_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0
_RENEW_SECONDS = 10.0
#: One worker mirrors at a time. The claim outlasts the longest pause together with a call that is not answered.
_CLAIMS = Claims(MirrorState, duration=timedelta(seconds=60), waiting={"claim": ""})


def run_mirror(stop: threading.Event) -> None:
    """Keep MLflow's runs like the trainings until the event is set. Several processes may run it: one mirrors."""
    MirrorLoop(Mirror(MlflowServer()), stop).run()


class _Stopped(Exception):
    """The process was asked to end."""


class MirrorLoop:
    """Runs the mirror's turns, later and later while MLflow is away, as long as this process holds the claim."""

    def __init__(self, mirror: Mirror, stop: threading.Event) -> None:
        self._mirror = mirror
        self._stop = stop
        self._claim: Claim[MirrorState] | None = None
        self._renewing = Interval(_RENEW_SECONDS)
        self._backoff = Backoff(first_seconds=_TURN_SECONDS, longest_seconds=_LONGEST_PAUSE_SECONDS)
        self._is_away = False

    def run(self) -> None:
        """Mirror until the event is set, then release the claim."""
        while not self._stop.is_set():
            has_more = self.turn()
            still_alive()
            if not has_more:
                self._stop.wait(self._backoff.pause_seconds or _TURN_SECONDS)
        if self._claim is not None:
            with suppress(ClaimLost):
                _CLAIMS.release(self._claim)

    def turn(self) -> bool:
        """Mirror once, if this process holds the claim. Returns whether there may be more to do at once."""
        try:
            return self._hold_claim() and self._mirror_once()
        except _Stopped:
            return False
        except ClaimLost as error:
            logger.warning("%s", error)
            self._claim = None
        except Away as error:
            self._backoff.add(time.monotonic())
            note(timezone.now(), answers=False)
            if not self._is_away:
                logger.warning("%s; what is to be sent waits", error)
            self._is_away = True
        except Exception:
            self._backoff.add(time.monotonic())
            logger.exception("a turn of the mirror failed; the next one tries again")
            close_old_connections()
        return False

    def _mirror_once(self) -> bool:
        has_more = self._mirror.turn(timezone.now(), self._between_calls)
        note(timezone.now(), answers=True)
        self._backoff.reset()
        if self._is_away:
            logger.info("MLflow answers again")
        self._is_away = False
        return has_more

    def _hold_claim(self) -> bool:
        """Renew the claim, or make it. Returns False while another process holds it. Raises ClaimLost."""
        now = timezone.now()
        if self._claim is not None:
            _CLAIMS.renew(self._claim, now)
        else:
            MirrorState.objects.get_or_create(defaults={"asked_at": now})
            self._claim = _CLAIMS.claim_first(_CLAIMS.free(now), now)
        return self._claim is not None

    def _between_calls(self) -> None:
        """Renew the claim during a long turn, and break the turn off where the process shall end."""
        still_alive()
        if self._stop.is_set():
            raise _Stopped
        if self._claim is not None and self._renewing.is_due(time.monotonic()):
            _CLAIMS.renew(self._claim, timezone.now())
