"""The executor's clock: as the machine's was at the start, and from then on without jumps, whoever sets that one."""

import time
from collections.abc import Callable

__all__ = ["steady_clock"]


def steady_clock() -> Callable[[], float]:
    """Tells Unix seconds; time in which the machine was suspended counts."""
    at_start = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: at_start + time.clock_gettime(time.CLOCK_BOOTTIME)
