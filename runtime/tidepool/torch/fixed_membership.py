"""The gang of a fixed-size or single-process script: all of its ranks begin together, once, and nobody joins later.

The pure half of the coordinator for these engines, with the methods of `Membership`. It forms generation 1 when a rank
is ready in every place of the target, and calls it active when all of them run the script. What a death means is not
decided here: nothing can be saved by planning anew, so the keepers' journals tell the control plane, which ends the
incarnation as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidepool.protocol import GenerationPlan, Hello, KeeperHello, Member, PlanMember, Said, Told
from tidepool.torch.actions import Action, Record, Tell, active_record, planned_record

__all__ = ["GANG_GENERATION", "FixedMembership"]

#: A session that begins in a single process plans the later ones, by `Membership`.
GANG_GENERATION = 1


@dataclass
class _GangRank:
    hello: Hello
    #: Where it would let the others meet; None until it is ready.
    meeting: tuple[str, int] | None = None
    told: bool = False


@dataclass
class FixedMembership:
    #: How many ranks the script has from its start to its end.
    size: int
    target: list[Member] = field(default_factory=list)
    target_revision: int = -1
    ranks: dict[str, _GangRank] = field(default_factory=dict)
    plan: GenerationPlan | None = None
    #: Members that run the script.
    begun: set[str] = field(default_factory=set)
    #: The beginning of the generation is in the journal.
    recorded: bool = False
    #: Never: the end of a gang is seen by its keepers, and who is left of it is ended by a wish.
    finished: bool = False
    lost: bool = False
    halted: bool = False

    # --- what happened ---

    def wished(self, target: list[Member], target_revision: int, now: float, *, halt: bool = False) -> list[Action]:
        """`halt` is asked of nobody here: such a script saves itself when it is told to end, or it does not."""
        if target_revision < self.target_revision:
            return []
        self.target, self.target_revision = target, target_revision
        return self._form(now)

    def connected(self, hello: Hello, now: float) -> list[Action]:
        if self.plan is not None and hello.wid not in self._members():
            return [Tell(hello.wid, Told("fenced"))]
        self.ranks[hello.wid] = _GangRank(hello)
        return [Record("rank_joined", {"wid": hello.wid, "host": hello.host, "slot": hello.slot, "at": now})]

    def said(self, wid: str, said: Said, now: float) -> list[Action]:
        rank = self.ranks.get(wid)
        if rank is None:
            return []
        if said.kind == "ready":
            rank.meeting = (str(said.detail["address"]), int(said.detail["port"]))
            return self._form(now)
        if said.kind == "switched":
            rank.told = True
            self.begun.add(wid)
            return self._begin(said, now)
        return []

    def disconnected(self, wid: str, now: float) -> list[Action]:
        self.ranks.pop(wid, None)
        return []

    def keeper_told(self, hello: KeeperHello, now: float) -> list[Action]:
        """Nobody is given up here: what a script that knows nothing of us does is not to be judged by its silence."""
        return []

    def ticked(self, now: float) -> list[Action]:
        return []

    def restore(self, planned: dict[int, GenerationPlan], active: int, target_revision: int, now: float) -> None:
        """Continue after a restart of the coordinator: where they meet is not in the journal, rank 0 says it again."""
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
        first = self.ranks.get(self.plan.members[0].wid)
        if first is None or first.meeting is None:
            return actions
        address, port = first.meeting
        self.plan = replace(self.plan, store_address=address, store_port=port)
        untold = [wid for wid in self._members() if wid in self.ranks and not self.ranks[wid].told]
        for wid in untold:
            self.ranks[wid].told = True
        return actions + [Tell(wid, Told("commit", GANG_GENERATION, self.plan)) for wid in untold]

    def _complete_gang(self) -> list[PlanMember] | None:
        """A ready rank in every place, host by host in the target's order, as `torchrun` numbers them."""
        ready = {(rank.hello.host, rank.hello.slot): rank.hello for rank in self.ranks.values() if rank.meeting}
        places = [(member.host, member.slot) for member in self.target]
        if len(places) != self.size or not set(places) <= set(ready):
            return None
        hosts = list(dict.fromkeys(host for host, _ in places))
        places.sort(key=lambda place: (hosts.index(place[0]), place[1]))
        return [PlanMember(ready[place].wid, *place, holder=True) for place in places]

    def _begin(self, said: Said, now: float) -> list[Action]:
        if self.plan is None or self.recorded or not set(self._members()) <= self.begun:
            return []
        self.recorded = True
        return [active_record(self.plan, said, now)]

    def _members(self) -> list[str]:
        return [member.wid for member in self.plan.members] if self.plan else []
