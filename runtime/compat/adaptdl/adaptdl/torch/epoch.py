"""The loop over epochs: a process that starts, or joins, begins with the epoch under way."""

from collections.abc import Iterator

from adaptdl._training import training

__all__ = ["current_epoch", "finished_epochs", "remaining_epochs_until"]


def remaining_epochs_until(epoch: int) -> Iterator[int]:
    """Iterate over the epochs that are left to do, up to that number. A `break` finishes the epoch.

    Raises RuntimeError in another such loop.
    """
    return training().epochs(epoch)


def current_epoch() -> int | None:
    """Return the number of the epoch; None outside of a loop over epochs."""
    return training().place.epoch


def finished_epochs() -> int:
    return training().ledger.finished
