"""The executor's clock: starts at the machine's time and does not jump when that is set."""

import time
from collections.abc import Callable

__all__ = ["steady_clock"]


def steady_clock() -> Callable[[], float]:
    """Return a clock of Unix seconds that counts the time of machine suspension, too."""
    at_start = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: at_start + time.clock_gettime(time.CLOCK_BOOTTIME)
