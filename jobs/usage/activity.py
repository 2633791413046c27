"""Busy and idle time of a held GPU, added up from one reading of its utilisation to the next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.usage.intervals import PIECE, cuts

__all__ = ["MAX_GAP_MS", "Counted", "Reading", "count"]

#: After a longer silence nobody knows what the GPU did meanwhile.
MAX_GAP_MS = 10_000


@dataclass(frozen=True, slots=True)
class Counted:
    """The sums so far of the quarter of an hour that begins at `start`, for a claim."""

    claim: int
    start: int
    busy: int = 0
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    #: When, and when the one before was; in milliseconds.
    at: int
    before: int | None
    #: None: the GPU does not tell, or there is none.
    is_busy: bool | None
    #: Who holds it, and since when; None: nobody.
    claim: int | None
    claimed_at: int = 0


def count(counted: Counted | None, reading: Reading) -> tuple[Counted | None, Sequence[Counted]]:
    """Add a reading; returns the open sums, and those that it completes."""
    finished = []
    if counted is not None and counted.claim != reading.claim:
        finished.append(counted)
        counted = None
    for start, end in cuts(*_told(reading), PIECE):
        quarter = start - start % PIECE
        if counted is not None and counted.start != quarter:
            finished.append(counted)
            counted = None
        assert reading.claim is not None
        counted = counted or Counted(reading.claim, quarter)
        if reading.is_busy:
            counted = replace(counted, busy=counted.busy + end - start)
        else:
            counted = replace(counted, idle=counted.idle + end - start)
    return counted, finished


def _told(reading: Reading) -> tuple[int, int]:
    """The time that the reading tells about; empty if none."""
    if reading.claim is None or reading.is_busy is None or reading.before is None:
        return 0, 0
    if not 0 < reading.at - reading.before <= MAX_GAP_MS:
        return 0, 0
    return max(reading.before, reading.claimed_at), reading.at
