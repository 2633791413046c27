"""Values of options in the table of settings on the page of a job, and as the scheduler reads them."""

from tidepool.protocol import STALL_SECONDS

from scheduling.snapshot import Share

__all__ = ["GIB", "between_checkpoints", "gib_words", "number_words", "stopped_after", "wish_of"]

GIB = 1024**3


def number_words(value: int | None) -> str:
    return "" if value is None else str(value)


def between_checkpoints(seconds: int | None) -> str:
    if seconds is None:
        return ""
    return f"at least every {seconds} s" if seconds else "none"


def stopped_after(seconds: int | None) -> str:
    return f"stopped after {seconds or STALL_SECONDS:g} s without one"


def gib_words(value: int | None) -> str:
    return "" if value is None else f"{value} GiB"


def wish_of(cores: int | None, memory_gib: int | None) -> Share | None:
    """Return what options ask for with each GPU; None: the share of a slot."""
    return Share(cores or 0, (memory_gib or 0) * GIB) if cores or memory_gib else None
