"""Python's garbage collector, off while a process makes very many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collector"]


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the collector off: it would look through all that is still in use, again and again.

    For a process that does one thing at a time: what is left behind is collected soon after.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
