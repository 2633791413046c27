"""What a coordinator knows of a live rank, of the generation that it is forming, and of those it could not form."""

from __future__ import annotations

from dataclasses import dataclass

from tidepool.protocol import GenerationPlan

__all__ = ["Pending", "Rank", "Setbacks"]

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 15.0


@dataclass
class Rank:
    wid: str
    host: str
    slot: int
    ready_at: float | None = None
    #: Generation whose group it has switched to; it holds the training's state from then on.
    generation: int = 0
    left: bool = False
    #: Of the wish that it was started for.
    target_revision: int = 0


@dataclass
class Pending:
    plan: GenerationPlan
    since: float
    #: Old members and new ones that still have to answer PREPARE.
    unprepared: set[str]
    committed: bool = False


@dataclass
class Setbacks:
    """Changes in a row whose group could not be built: each is followed by a longer pause."""

    count: int = 0
    #: When the next change may be tried.
    until: float = 0.0

    def add(self, now: float) -> None:
        self.until = now + min(_FIRST_PAUSE_SECONDS * 2**self.count, _LONGEST_PAUSE_SECONDS)
        self.count += 1
