"""The gang of a fixed-size or single-process script: all its ranks start together, once, and none joins later.

The pure half of the coordinator for these engines, with the methods of `Membership`. It forms generation 1 when a rank
is ready in every place of the target, and calls it active when all of them run the script. What a death means is not
decided here: nothing can be saved by planning anew, so the shims' journals tell the control plane, which ends the
attempt as a whole.
"""

from dataclasses import dataclass, field

import msgspec

from tidepool.protocol import (
    CoordinatorMessage,
    GenerationPlan,
    Join,
    Member,
    MemberMessage,
    PlanMember,
    RankJoined,
    ShimJoin,
)
from tidepool.torch.coordination.roster import Action, Send, active_record, planned_record

__all__ = ["GANG_GENERATION", "FixedMembership"]

#: A session that begins in a single process plans the later ones, by `Membership`.
GANG_GENERATION = 1


@dataclass
class _GangRank:
    join: Join
    #: Rendezvous address that the rank offers to the others; None until it is ready.
    meeting: tuple[str, int] | None = None
    informed: bool = False


@dataclass
class FixedMembership:
    #: Number of slots that the script has from its start to its end, each with a rank unless one process holds them.
    size: int
    #: Whether one rank, in the first place of the target, holds all places.
    is_one_process: bool = False
    target: list[Member] = field(default_factory=list)
    target_revision: int = -1
    ranks: dict[str, _GangRank] = field(default_factory=dict)
    plan: GenerationPlan | None = None
    #: Members that run the script.
    begun: set[str] = field(default_factory=set)
    #: Whether the start of the generation is in the journal.
    recorded: bool = False
    #: Never: the end of a gang is seen by its shims, and who is left of it is ended by a desired state.
    finished: bool = False
    lost: bool = False
    halted: bool = False

    @property
    def active(self) -> GenerationPlan | None:
        return self.plan if self.recorded else None

    # --- events ----------

    def retarget(self, target: list[Member], target_revision: int, now: float, *, halt: bool = False) -> list[Action]:
        """Set the target. `halt` is ignored: such a script handles its own saving when it is terminated."""
        if target_revision < self.target_revision:
            return []
        self.target, self.target_revision = target, target_revision
        return self._form(now)

    def joined(self, join: Join, now: float) -> list[Action]:
        if self.plan is not None and join.member_id not in self._members():
            return [Send(join.member_id, CoordinatorMessage("fenced"))]
        self.ranks[join.member_id] = _GangRank(join)
        return [RankJoined(join.member_id, join.host, join.slot, at=now)]

    def received(self, member_id: str, message: MemberMessage, now: float) -> list[Action]:
        rank = self.ranks.get(member_id)
        if rank is None:
            return []
        if message.kind == "ready":
            rank.meeting = message.meeting
            return self._form(now)
        if message.kind == "switched":
            rank.informed = True
            self.begun.add(member_id)
            return self._begin(message, now)
        return []

    def disconnected(self, member_id: str, now: float) -> list[Action]:
        self.ranks.pop(member_id, None)
        return []

    def shim_joined(self, join: ShimJoin, now: float) -> list[Action]:
        """Give up no rank: these scripts send no heartbeats, so silence proves nothing."""
        return []

    def ticked(self, now: float) -> list[Action]:
        return []

    def restore(self, planned: dict[int, GenerationPlan], active: int, target_revision: int, now: float) -> None:
        """Continue after a restart of the coordinator. The rendezvous address is not in the journal; rank 0 sends it
        again."""
        self.plan, self.recorded = planned[GANG_GENERATION], active == GANG_GENERATION
        self.target_revision = target_revision

    # --- decisions ---

    def _form(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self.plan is None:
            members = self._complete_gang()
            if members is None:
                return []
            self.plan = GenerationPlan(GANG_GENERATION, members, "", 0, self.target_revision, "start")
            actions.append(planned_record(self.plan, now))
        first = self.ranks.get(self.plan.members[0].member_id)
        if first is None or first.meeting is None:
            return actions
        address, port = first.meeting
        self.plan = msgspec.structs.replace(self.plan, store_address=address, store_port=port)
        uninformed = [
            member_id for member_id in self._members() if member_id in self.ranks and not self.ranks[member_id].informed
        ]
        for member_id in uninformed:
            self.ranks[member_id].informed = True
        return actions + [
            Send(member_id, CoordinatorMessage("commit", GANG_GENERATION, self.plan)) for member_id in uninformed
        ]

    def _complete_gang(self) -> list[PlanMember] | None:
        """A ready rank in every place, or one that holds them all.

        Host by host in the target's order, as `torchrun` numbers them.
        """
        ready = {(rank.join.host, rank.join.slot): rank.join for rank in self.ranks.values() if rank.meeting}
        places = [(member.host, member.slot) for member in self.target]
        if len(places) != self.size:
            return None
        if self.is_one_process:
            first = ready.get(min(places))
            return [PlanMember(first.member_id, *place, holder=True) for place in sorted(places)] if first else None
        if not set(places) <= set(ready):
            return None
        hosts = list(dict.fromkeys(host for host, _ in places))
        places.sort(key=lambda place: (hosts.index(place[0]), place[1]))
        return [PlanMember(ready[place].member_id, *place, holder=True) for place in places]

    def _begin(self, message: MemberMessage, now: float) -> list[Action]:
        if self.plan is None or self.recorded or not set(self._members()) <= self.begun:
            return []
        self.recorded = True
        return [active_record(self.plan, message, now)]

    def _members(self) -> list[str]:
        return list(dict.fromkeys(member.member_id for member in self.plan.members)) if self.plan else []
