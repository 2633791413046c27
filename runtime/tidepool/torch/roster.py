"""What a coordinator knows of a live rank, and of the generation that it is forming."""

from __future__ import annotations

from dataclasses import dataclass

from tidepool.protocol import GenerationPlan

__all__ = ["Pending", "Rank"]


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
