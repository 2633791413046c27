"""Values of options in the table of settings on the page of a job."""

from tidepool.protocol import STALL_SECONDS

__all__ = ["between_checkpoints", "number_words", "stopped_after"]


def number_words(value: int | None) -> str:
    return "" if value is None else str(value)


def between_checkpoints(seconds: int | None) -> str:
    if seconds is None:
        return ""
    return f"at least every {seconds} s" if seconds else "none"


def stopped_after(seconds: int | None) -> str:
    return f"stopped after {seconds or STALL_SECONDS:g} s without one"
