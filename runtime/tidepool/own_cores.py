"""Cores of the host that this process may count on, and the threads and loader's workers that suit them."""

import os
from math import floor

from tidepool.env import granted_cores

__all__ = ["cores", "loader_workers", "threads_on"]


def cores() -> float:
    """Return the number of cores that this rank may count on: those of its GPUs' share of the host, or asked for.

    Off the cluster: all that this process may use. Ranks that join later, and ranks after a resize, have as many.
    """
    return granted_cores() or float(len(os.sched_getaffinity(0)))


def loader_workers() -> int:
    """Return a number of workers for a `DataLoader` of this rank: its cores, less one for the training itself."""
    return max(0, floor(cores()) - 1)


def threads_on(cores: float) -> int:
    """Return the number of threads of a process with so many cores."""
    return max(1, floor(cores))
