"""The coordinator's view of its ranks: live ranks, the generation being formed, and the members of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidepool.protocol import GenerationPlan, Member

__all__ = [
    "JOIN_WINDOW_SECONDS",
    "Change",
    "Pending",
    "Rank",
    "generation_of",
    "holders_of",
    "member_ids",
    "next_change",
    "wanted_of",
]

#: How long a rank that is ready waits for others that are still starting, so that 1 -> 8 is one resize, not seven.
JOIN_WINDOW_SECONDS = 5.0


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


def member_ids(plan: GenerationPlan | None) -> list[str]:
    return [member.member_id for member in plan.members] if plan else []


def generation_of(plan: GenerationPlan | None) -> int:
    return plan.generation if plan else 0


def wanted_of(ranks: Mapping[str, Rank], target: list[Member]) -> list[str]:
    """The live rank of each place of the target, in the target's order; places without one are left out."""
    by_place = {(rank.host, rank.slot): rank.member_id for rank in ranks.values() if not rank.left}
    places = [(member.host, member.slot) for member in target]
    return [by_place[place] for place in places if place in by_place]


def holders_of(ranks: Mapping[str, Rank], active: GenerationPlan | None) -> list[str]:
    """Live ranks that have the training's state: members of the active generation first, in their order.

    A member that has not yet reported that it switched may still be receiving the state.
    """
    holders = [member_id for member_id, rank in ranks.items() if rank.generation and not rank.left]
    members = [member_id for member_id in member_ids(active) if member_id in holders]
    return members + sorted(set(holders) - set(members))


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
