"""What one job asks of its group's slots, reduced to the numbers that policies read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

__all__ = ["Demand", "by_priority", "by_submission"]

_ID, _SUBMITTED_AT, _PRIORITY = attrgetter("id"), attrgetter("submitted_at"), attrgetter("priority")


@dataclass(slots=True)  # not frozen, like others of which there are very many: that makes one eight times as slowly
class Demand:
    id: int
    priority: int
    submitted_at: float
    #: A job that is not elastic has min_slots == max_slots.
    min_slots: int
    max_slots: int
    #: It holds slots that it has not been told to give back.
    running: bool
    #: How many of those are in service. 0 unless running.
    held: int = 0
    #: It has not run for its group's minimum run time yet: it may be shrunk, not stopped.
    protected: bool = False
    #: What its group leaves it of what it holds, where other groups take something back. None: all.
    limit: int | None = None

    @property
    def kept(self) -> int:
        """What it has if no job of its group takes anything from it: its own maximum may have been lowered below what
        it holds, or its group gives something back."""
        kept = min(self.held, self.max_slots)
        return kept if self.limit is None else min(kept, self.limit)

    @property
    def least(self) -> int:
        """The least that it trains on, if it runs: what it holds may be below its minimum."""
        return min(self.kept, self.min_slots)


def by_priority(demands: Iterable[Demand]) -> list[Demand]:
    """In this order; of equals first who has asked for longer, then by id."""
    return sorted(by_submission(demands), key=_PRIORITY, reverse=True)


def by_submission(demands: Iterable[Demand]) -> list[Demand]:
    return sorted(sorted(demands, key=_ID), key=_SUBMITTED_AT)
