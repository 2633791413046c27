"""Succession of a restarted coordinator: its predecessor's plans, from the journal. Pure bookkeeping, no I/O.

Ranks train on while there is no coordinator. Until all members of the active generation are back, or given up, nothing
is planned: who is missing may be alive, and may have switched to a generation that the predecessor had planned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidepool.protocol import GenerationPlan, Join, ShimJoin

__all__ = ["REJOIN_SECONDS", "Succession"]

#: How long the members of the active generation may take to reconnect.
REJOIN_SECONDS = 10.0


@dataclass
class Succession:
    under_way: bool = False
    #: member_id -> when its absence counts as its death.
    awaited: dict[str, float] = field(default_factory=dict)
    #: Generations that the predecessor planned and nobody trains in: ranks may still wait in their groups.
    void: list[int] = field(default_factory=list)
    #: By generation; ranks may have switched to one after the predecessor had died.
    _planned: dict[int, GenerationPlan] = field(default_factory=dict)

    @classmethod
    def of(cls, planned: dict[int, GenerationPlan], active: GenerationPlan | None, now: float) -> Succession:
        latest = active or planned[max(planned)]  # nobody is known to have begun: somebody may have
        return cls(True, {member.member_id: now + REJOIN_SECONDS for member in latest.members}, [], planned)

    def returned(self, member_id: str) -> None:
        self.awaited.pop(member_id, None)

    def later_plan(self, join: Join, active: int) -> GenerationPlan | None:
        """The plan of a rank whose generation is later than the active one: only the predecessor knew of its switch."""
        plan = self._planned.get(join.generation)
        return plan if self.under_way and plan and plan.generation > active else None

    def await_instead(self, member_ids: Collection[str]) -> None:
        """Of the generation that turned out to be the active one: those that are not back."""
        deadline = max(self.awaited.values(), default=0.0)
        self.awaited = dict.fromkeys(member_ids, deadline)

    def pass_time(self, now: float) -> None:
        self.awaited = {member_id: deadline for member_id, deadline in self.awaited.items() if now < deadline}

    def dead_on(self, join: ShimJoin) -> list[str]:
        """Stop awaiting ranks of a host that its shim does not list as living, and return them."""
        hosts = {member.member_id: member.host for plan in self._planned.values() for member in plan.members}
        dead = [
            member_id
            for member_id in self.awaited
            if hosts.get(member_id) == join.host and member_id not in join.living
        ]
        for member_id in dead:
            del self.awaited[member_id]
        return dead

    def end(self, active: int) -> None:
        """Nobody is awaited any more: what was planned and nobody trains in is void."""
        self.under_way = False
        self.void = [generation for generation in self._planned if generation > active]
