"""Where an instance group stands beside the others that use the same slots."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Standing"]


@dataclass(frozen=True)
class Standing:
    """All counts are slots in service."""

    #: That its resource group offers.
    total: int
    #: The most that its jobs can use.
    wants: int
    #: Its exact part by quota and weight; see `scheduling.entitlement`.
    deserved: Fraction
    #: What it may have in this turn: its part made whole, what others leave of theirs, less what they still keep.
    room: int
    #: What its jobs have once everything has changed hands.
    used: int
    #: What they hold now.
    held: int
    quota: int | None
    weight: int

    @property
    def gives_back(self) -> int:
        return max(0, self.held - self.used)
