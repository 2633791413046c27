"""The coordinator's records, without any I/O: its ranks, the generation being formed, and the actions to carry out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from tidepool.protocol import (
    ActiveMember,
    Cause,
    CoordinatorMessage,
    Entry,
    GenerationActive,
    GenerationPlan,
    GenerationPlanned,
    Join,
    Member,
    MemberMessage,
    PlanMember,
    ShimCommand,
    ShimJoin,
    host_of,
)

__all__ = [
    "JOIN_WINDOW_SECONDS",
    "REJOIN_SECONDS",
    "Action",
    "Pending",
    "PredecessorPlans",
    "Publish",
    "Rank",
    "Send",
    "abandonments",
    "active_members",
    "active_record",
    "dismissals",
    "first_members",
    "generation_of",
    "gone_hosts",
    "holders_of",
    "is_history",
    "let_leavers_go",
    "member_ids",
    "new_plan",
    "next_change",
    "planned_record",
    "training_members",
    "unwanted_of",
    "wanted_of",
]

#: Seconds that a ready rank waits for others that are still starting, so that 1 -> 8 is one resize, not seven.
JOIN_WINDOW_SECONDS = 5.0
#: Seconds that members of the active generation may take to reconnect to a restarted coordinator.
REJOIN_SECONDS = 10.0


@dataclass(frozen=True)
class Send:
    member_id: str
    message: CoordinatorMessage


@dataclass(frozen=True)
class Publish:
    """Give the checkpoint that `member_id` has written its name; `published` or `not_published` says how that went."""

    member_id: str
    message: MemberMessage


#: A message. A shim command goes to the shim on the rank's host, even if the rank itself receives no messages any more.
Action = Send | Entry | ShimCommand | Publish


@dataclass
class Rank:
    member_id: str
    host: str
    slot: int
    ready_at: float | None = None
    #: Generation whose group it has switched to; it holds the training's state from then on.
    generation: int = 0
    left: bool = False
    #: Revision of the desired state that the rank was started for.
    target_revision: int = 0
    #: Epoch in which it joined others that trained (None: it has not), and newest epoch that it has reported.
    joined_in: int | None = None
    epoch: int = 0

    def switched(self, message: MemberMessage, plan: GenerationPlan | None) -> None:
        """Note that it trains in a generation, by its message and the newest plan."""
        if not self.generation and plan is not None and plan.cause == "resize":
            self.joined_in = self.epoch = message.epoch
        self.generation = max(self.generation, message.generation)

    def is_newcomer(self, active: GenerationPlan | None) -> bool:
        """Return whether it has joined a training under way, or is about to, and is not in its second epoch."""
        if not self.generation:
            return active is not None
        return self.joined_in is not None and self.epoch <= self.joined_in + 1


@dataclass
class Pending:
    plan: GenerationPlan
    since: float
    #: Old members and new ones that still have to answer PREPARE.
    unprepared: set[str]
    committed: bool = False

    def is_prepared_in(self, message: MemberMessage) -> bool:
        """Return whether the message is about this generation, and it may still be void."""
        return self.plan.generation == message.generation and not self.committed

    def is_begun_by(self, member_id: str, message: MemberMessage) -> bool:
        """Return whether its rank 0 reports that it trains in this generation."""
        return self.plan.generation == message.generation and self.plan.members[0].member_id == member_id


def member_ids(plan: GenerationPlan | None) -> list[str]:
    return [member.member_id for member in plan.members] if plan else []


def generation_of(plan: GenerationPlan | None) -> int:
    return plan.generation if plan else 0


def new_plan(
    generation: int,
    ranks: Mapping[str, Rank],
    holders: list[str],
    joiners: list[str],
    place: tuple[str, int],
    target_revision: int,
    cause: Cause,
) -> GenerationPlan:
    """The plan of a generation that meets at `place`: of ranks that hold the state, and of others that receive it."""
    chosen = [ranks[member_id] for member_id in holders + joiners]
    members = [PlanMember(rank.member_id, rank.host, rank.slot, rank.member_id in holders) for rank in chosen]
    return GenerationPlan(generation, members, *place, target_revision, cause)


def gone_hosts(ranks: Mapping[str, Rank], active: GenerationPlan | None) -> set[str]:
    """Hosts of the active generation on which none of its members is left."""
    members = active.members if active else []
    return {member.host for member in members} - {member.host for member in members if member.member_id in ranks}


def planned_record(plan: GenerationPlan, now: float) -> GenerationPlanned:
    return GenerationPlanned(plan.generation, plan.members, plan.target_revision, plan.cause, at=now)


def active_record(plan: GenerationPlan, message: MemberMessage, now: float) -> GenerationActive:
    return GenerationActive(
        generation=plan.generation,
        world_size=len(plan.members),
        step=message.step,
        pause_ms=message.pause_ms,
        target_revision=plan.target_revision,
        cause=plan.cause,
        members=active_members(plan),
        at=now,
    )


def active_members(plan: GenerationPlan) -> list[ActiveMember]:
    return [ActiveMember(member.member_id, rank, member.host, member.slot) for rank, member in enumerate(plan.members)]


def wanted_of(ranks: Mapping[str, Rank], target: list[Member]) -> list[str]:
    """Return the live rank of each place of the target, in the target's order; places without one are left out."""
    by_place = {(rank.host, rank.slot): rank.member_id for rank in ranks.values() if not rank.left}
    places = [(member.host, member.slot) for member in target]
    return [by_place[place] for place in places if place in by_place]


def training_members(ranks: Mapping[str, Rank], active: GenerationPlan | None, pending: Pending | None) -> list[str]:
    """Live members of the generation that trains, and of one that everybody is switching to."""
    members = member_ids(active) + member_ids(pending.plan if pending and pending.committed else None)
    return [member_id for member_id in dict.fromkeys(members) if member_id in ranks and not ranks[member_id].left]


def unwanted_of(ranks: Mapping[str, Rank], target: list[Member], members: list[str], revision: int) -> list[Rank]:
    """Ranks whose slot was given back before they had joined anything. Some `members` may still receive the state."""
    kept = {*wanted_of(ranks, target), *members}
    return [
        rank
        for rank in ranks.values()
        if not rank.left and not rank.generation and rank.member_id not in kept and rank.target_revision <= revision
    ]


def dismissals(
    ranks: Mapping[str, Rank], target: list[Member], active: GenerationPlan | None, revision: int
) -> list[Send]:
    """Let ranks go that are not wanted any more, and note that they leave."""
    unwanted = unwanted_of(ranks, target, member_ids(active), revision)
    for rank in unwanted:
        rank.left = True
    return [Send(rank.member_id, CoordinatorMessage("stop")) for rank in unwanted]


def abandonments(ranks: Mapping[str, Rank], active: GenerationPlan | None) -> list[Action]:
    """Tell live members that may still be receiving the state that their generation is void."""
    holders = holders_of(ranks, active)
    receiving = [member_id for member_id in member_ids(active) if member_id in ranks and member_id not in holders]
    return [Send(member_id, CoordinatorMessage("abandon", generation_of(active))) for member_id in receiving]


def holders_of(ranks: Mapping[str, Rank], active: GenerationPlan | None) -> list[str]:
    """Live ranks that have the training's state: members of the active generation first, in their order.

    A member that has not yet reported that it switched may still be receiving the state.
    """
    holders = [member_id for member_id, rank in ranks.items() if rank.generation and not rank.left]
    members = [member_id for member_id in member_ids(active) if member_id in holders]
    return members + sorted(set(holders) - set(members))


def let_leavers_go(ranks: Mapping[str, Rank], active: GenerationPlan | None, plan: GenerationPlan) -> None:
    """Members that switch out with `plan` may not have reported it yet: they are no candidates for their slots.

    After a failure nobody leaves: a rank that is no member then was still receiving the state, and waits for another
    turn.
    """
    if plan.cause == "failure":
        return
    for member_id in set(member_ids(active)) - set(member_ids(plan)):
        if member_id in ranks:
            ranks[member_id].left = True


def first_members(wanted: list[str], ranks: Mapping[str, Rank], min_slots: int, leader: str) -> list[str]:
    """Members of the first generation, in the order of the target: those that were ready first; none before enough are.

    leader: the rank that was told that it comes first; it leads the list and is waited for. "": none was told.
    """
    ready = {member_id: at for member_id in wanted if (at := ranks[member_id].ready_at) is not None}
    if len(ready) < min_slots or (leader and leader not in ready):
        return []
    chosen = sorted(ready, key=lambda member_id: (member_id != leader, ready[member_id]))[:min_slots]
    return sorted(chosen, key=lambda member_id: (member_id != leader, wanted.index(member_id)))


def next_change(
    wanted: list[str], active: list[str], ready_at: Mapping[str, float], *, places: int, now: float
) -> tuple[list[str], list[str], list[str]] | None:
    """The next change from the `active` ranks to the `wanted` ones, which are those that live in the target's `places`.

    Returns who stays, who joins and who leaves; those that stay have the training's state.

    None: nothing to do, no rank to hand the state to (training continues unchanged), or other ranks are almost ready.
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
        return active, join, []  # they hand over the state first, and leave with the next change
    return stay, join, leave


@dataclass
class PredecessorPlans:
    """A restarted coordinator's view of its predecessor's plans, from the journal.

    Ranks continue to train without a coordinator. Nothing is planned until all members of the active generation are
    back or given up: a missing one may be alive, and may have switched to a planned generation.
    """

    under_way: bool = False
    #: member_id -> time at which an absent member counts as dead.
    awaited: dict[str, float] = field(default_factory=dict)
    #: Generations that the predecessor planned and nobody trains in: ranks may still wait in their groups.
    void: list[int] = field(default_factory=list)
    #: Plans by generation; ranks may have switched to one after the predecessor had died.
    _planned: dict[int, GenerationPlan] = field(default_factory=dict)
    #: The predecessor's host, if it cannot be reached: its ranks are not awaited.
    _gone_host: str | None = None

    @classmethod
    def of(cls, planned: dict[int, GenerationPlan], active: GenerationPlan | None, now: float) -> Self:
        latest = active or planned[max(planned)]  # no member is known to have switched, but one may have
        return cls(True, {member.member_id: now + REJOIN_SECONDS for member in latest.members}, [], planned)

    def returned(self, member_id: str) -> None:
        self.awaited.pop(member_id, None)

    def catch_up(self, join: Join, active: GenerationPlan | None, ranks: Collection[str]) -> GenerationPlan | None:
        """Return the active plan. Of a later one that a rank is in, only the predecessor knew: its members are awaited.

        ranks: those that are back.
        """
        plan = self._planned.get(join.generation)
        if not self.under_way or plan is None or plan.generation <= generation_of(active):
            return active
        deadline = max(self.awaited.values(), default=0.0)
        self.awaited = {member_id: deadline for member_id in member_ids(plan) if member_id not in ranks}
        self.give_up(self._gone_host)
        return plan

    def give_up(self, host: str | None) -> None:
        """Await no rank of that host."""
        self._gone_host = host
        self.awaited = {member_id: end for member_id, end in self.awaited.items() if host_of(member_id) != host}

    def pass_time(self, now: float) -> None:
        self.awaited = {member_id: deadline for member_id, deadline in self.awaited.items() if now < deadline}

    def dead_on(self, join: ShimJoin) -> list[str]:
        """Stop awaiting ranks of a host that its shim does not list as living, and return them."""
        dead = [
            member_id for member_id in self.awaited if host_of(member_id) == join.host and member_id not in join.living
        ]
        for member_id in dead:
            del self.awaited[member_id]
        return dead

    def end(self, active: int) -> None:
        """Void the plans in which no rank trains, once no member is awaited any more."""
        self.under_way = False
        self.void = [generation for generation in self._planned if generation > active]


def is_history(
    join: Join, active: GenerationPlan | None, pending: Pending | None, succession: PredecessorPlans
) -> bool:
    """Return whether the rank came back after the others had continued without it."""
    known = member_ids(active) + member_ids(pending.plan if pending else None)
    return join.generation > 0 and not succession.under_way and join.member_id not in known
