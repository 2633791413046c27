"""What a coordinator knows of a live rank, of the generation that it is forming, and of those it could not form.

And who is to be in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidepool.protocol import GenerationPlan

__all__ = ["JOIN_WINDOW_SECONDS", "Change", "Pending", "Rank", "Setbacks", "next_change"]

#: How long a rank that is ready waits for others that are still starting, so that 1 -> 8 is one resize, not seven.
JOIN_WINDOW_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 15.0


@dataclass
class Rank:
    member_id: str
    host: str
    slot: int
    ready_at: float | None = None
    #: Generation whose group it has switched to; it holds the training's state from then on.
    generation: int = 0
    left: bool = False
    #: Of the desired state that it was started for.
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


@dataclass(frozen=True)
class Change:
    """Rank ids; those that stay have the training's state."""

    stay: list[str]
    join: list[str]
    leave: list[str]


def next_change(
    wanted: list[str], active: list[str], ready_at: Mapping[str, float], *, places: int, now: float
) -> Change | None:
    """From the `active` ranks towards the `wanted` ones, which are those that live in the target's `places`.

    None: nothing to do, nobody to hand the state to (train on where we are), or others are about to be ready too.
    """
    stay = [member_id for member_id in active if member_id in wanted]
    join = [member_id for member_id in wanted if member_id not in active and member_id in ready_at]
    leave = [member_id for member_id in active if member_id not in wanted]
    if not join and (not leave or not stay):
        return None
    complete = places <= len([member_id for member_id in wanted if member_id in active or member_id in join])
    if (
        not (leave and stay)
        and not complete
        and now - min(ready_at[member_id] for member_id in join) < JOIN_WINDOW_SECONDS
    ):
        return None
    if not stay:
        return Change(active, join, [])  # they hand over first and leave with the next change
    return Change(stay, join, leave)
