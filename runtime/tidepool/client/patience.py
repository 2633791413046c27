"""Patience of a wait for a training while its site does not answer: the training goes on without the site."""

import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar

from tidepool.client.errors import Unreachable

__all__ = ["Patience"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Shortest and longest seconds between two tries, each of which takes up to `http.TRIES_FOR`.
_SOONEST, _LATEST = 0.25, 20.0
#: Seconds without an answer after which a line says that the wait goes on.
TELL_AFTER = 30.0


class Patience:
    """Patience of one wait for a job. In each outage, one line says that the wait goes on.

    again: the command that waits again, for those who end the wait. seconds: limit of the whole wait; None: no limit.
    """

    def __init__(
        self,
        job: int,
        url: str,
        *,
        again: str = "",
        say: Callable[[str], object] = logger.warning,
        seconds: float | None = None,
    ) -> None:
        self._job, self._url, self._say = job, url, say
        self.again = again or f"tidepool.job({job}).value()"
        self._ends = math.inf if seconds is None else time.monotonic() + seconds
        self.heard()

    @property
    def left(self) -> float:
        """Seconds until the limit; not positive after it."""
        return self._ends - time.monotonic()

    def heard(self) -> None:
        """Note that the site has answered."""
        self._heard_at = time.monotonic()
        self._pause, self._is_told = _SOONEST, False

    def keep(self, error: Unreachable) -> None:
        """Wait before the next try. Raises TimeoutError after the limit."""
        if self.left <= 0:
            raise TimeoutError(f"Training {self._job} goes on, as far as known: {error} `{self.again}` waits again.")
        silent = time.monotonic() - self._heard_at
        if silent >= TELL_AFTER and not self._is_told:
            self._is_told = True
            self._say(
                f"{self._url} has not answered for {silent:.0f} s. Training {self._job} goes on without it, as far as "
                f"known, and this waits until it answers. If you end the wait, `{self.again}` waits again."
            )
        time.sleep(min(self._pause, max(0.0, self.left)))
        self._pause = min(2 * self._pause, _LATEST)

    def call(self, request: Callable[[], Result]) -> Result:
        """Return the result of a request that may be repeated. Raises TimeoutError after the limit."""
        while True:
            try:
                result = request()
            except Unreachable as error:
                self.keep(error)
            else:
                self.heard()
                return result
