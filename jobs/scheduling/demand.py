"""What one job asks of its group's slots, reduced to the numbers that policies read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Demand", "Order", "by_priority", "by_submission"]


@dataclass(frozen=True)
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

    @property
    def kept(self) -> int:
        """What it has if nobody takes anything from it: its own maximum may have been lowered below what it holds."""
        return min(self.held, self.max_slots)


Order = Callable[[Demand], Any]


def by_priority(demand: Demand) -> tuple[int, float, int]:
    return (-demand.priority, demand.submitted_at, demand.id)


def by_submission(demand: Demand) -> tuple[float, int]:
    return (demand.submitted_at, demand.id)
