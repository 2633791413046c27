"""The pass that lends what groups cannot use of their parts."""

from collections import Counter
from dataclasses import replace

from scheduling.sharing.decision import Decision, within_limit
from scheduling.sharing.entitlement import SlotClass
from scheduling.sharing.flow import Flow
from scheduling.sharing.kept_slots import staying_slots
from scheduling.sharing.sharers import Division

__all__ = ["lend"]


def lend(division: Division) -> Division:
    """Lend unused slots: first so that no job is stopped, then to groups that want more, by quota and weight, then to
    any that can use them. If groups share only some slots, no job of fixed size stops for it, only to be moved."""
    lending = _Lending(division)
    if division.sharers.may_displace:
        lending.leave_fixed_in_place()
    taken = {name: lending.taken_by(name) for name in division.decisions}
    if sum(taken.values()) < sum(division.sharers.sizes.values()):
        lending.taken.ask(taken)
        lending.lend_to_who_would_be_stopped()
        lending.lend_to_who_wants_more()
        lending.lend_to_who_can_use_it()
    return lending.division


class _Lending:
    """The division as far as it has got, with the flows that say what is left."""

    def __init__(self, division: Division) -> None:
        self.division = division
        self._sharers = division.sharers
        #: Slots that are used, or kept as a quota that is not lent.
        self.taken = Flow(self._sharers.reach, self._sharers.sizes)

    def leave_fixed_in_place(self) -> None:
        self._look_beside_fixed()
        for name in sorted(self.division.decisions):
            room, used = self.division.rooms[name], self.division.decisions[name].used
            owned = max(self.division.claimants[name].asked_of_quota, self._sharers.pools[name].in_use)
            if used > owned:
                self.division = self.division.with_rooms({name: max(min(owned, room), self._in_place(name, room))})
                self._note_fixed(name)

    def lend_to_who_would_be_stopped(self) -> None:
        for name in self._largest_first():
            if self.division.decisions[name].reclaimed:
                needed = sum(demand.least for demand in self._sharers.pools[name].demands)
                room = self._there(name, min(needed, self.division.claimants[name].most))
                self._lend(name, room, keeps_jobs=True)

    def lend_to_who_wants_more(self) -> None:
        """Let each group keep what it uses. One that cannot use its part asks for no more, and what it leaves is shared
        out again."""
        full = {name for name, used in self.division.used.items() if used < self.division.rooms[name]}
        while any(map(self._could_have_more, self.division.decisions)):
            used = self.division.used
            parts = self._sharers.parts(
                {
                    name: replace(one, least=used[name], wants=used[name] if name in full else one.wants)
                    for name, one in self.division.claimants.items()
                }
            )
            for name, part in parts.items():
                self._lend(name, part)
            stuck = {name for name, part in parts.items() if self.division.decisions[name].used < part}
            if stuck <= full:
                return
            full |= stuck

    def lend_to_who_can_use_it(self) -> None:
        """Lend as many slots as a group's jobs hold, and then more, in an order that does not depend on what is held:
        otherwise a job would start because another one of its group runs, and stop that one."""
        in_use = {name: self._sharers.pools[name].in_use for name in self.division.decisions}
        most = {name: one.most for name, one in self.division.claimants.items()}
        for name in (*self._largest_first(), *sorted(self.division.decisions)):
            wanted = min(in_use.pop(name, most[name]), most[name])
            if self.division.decisions[name].used < wanted:
                self._lend(name, self._there(name, wanted))

    def _there(self, name: str, wanted: int) -> int:
        """Return how much of `wanted` the group can have. What others keep and do not use keeps it from borrowing, but
        not from its own quota, whether or not it could use its part."""
        claimants, found = self.division.claimants, self.taken.most(name, wanted)
        owned = min(wanted, claimants[name].asked_of_quota)
        if found < owned and not all(one.lends for one in claimants.values()):
            self.taken.ask(self.division.used)
            found = max(found, self.taken.most(name, owned))
            self.taken.ask({one: self.taken_by(one) for one in claimants})
        return found

    def taken_by(self, name: str) -> int:
        one, decision = self.division.claimants[name], self.division.decisions[name]
        owned = 0 if one.lends else min(one.owned, self.division.rooms[name])
        return max(decision.used, within_limit(decision.pool, owned, decision.pinned))

    def _lend(self, name: str, room: int, *, keeps_jobs: bool = False) -> None:
        """Give the group so much, unless it uses no more: a job that begins to fit may keep others waiting. With
        `keeps_jobs`, unless it stops as many: a group that uses a part of this could not get more afterwards."""
        before, now = self.division.rooms[name], self.division.decisions[name]
        if room > before and self._sharers.may_displace:
            room = self._in_place(name, room)
        if room > before:
            tried = self.division.decide(self._sharers.pools[name], room)
            if len(tried.reclaimed) < len(now.reclaimed) if keeps_jobs else tried.used > now.used:
                self.division = self.division.with_decisions({name: tried}, {name: room})
                self.taken.ask({name: self.taken_by(name)})
                if self._sharers.may_displace:
                    self._note_fixed(name)

    def _could_have_more(self, name: str) -> bool:
        """Return whether it could have more than it uses, if all others have no more than they use."""
        used, most = self.division.decisions[name].used, self.division.claimants[name].most
        return used < most and self.taken.most(name, used + 1) > used

    def _largest_first(self) -> list[str]:
        return sorted(self.division.decisions, key=lambda name: (-self._sharers.pools[name].in_use, name))

    # --- jobs of fixed size, which stay where they are ---------------------------------------------------------------

    def _look_beside_fixed(self) -> None:
        """Find the slots beside fixed-size jobs that stay, and what other jobs have of them."""
        self._fixed = {name: self._classes_of_fixed(one) for name, one in self.division.decisions.items()}
        taken = sum(self._fixed.values(), Counter[SlotClass]())
        sizes = {offered: size - taken[offered] for offered, size in self._sharers.sizes.items()}
        self._beside = Flow(self._sharers.reach, sizes)
        self._beside.ask({name: used - self._fixed[name].total() for name, used in self.division.used.items()})

    def _classes_of_fixed(self, decision: Decision) -> Counter[SlotClass]:
        return self._sharers.index.classes_of(staying_slots(decision))

    def _note_fixed(self, name: str) -> None:
        """Note that the group's decision has changed."""
        decision = self.division.decisions[name]
        if self._classes_of_fixed(decision) != self._fixed[name]:
            self._look_beside_fixed()
        else:
            self._beside.ask({name: decision.used - self._fixed[name].total()})

    def _in_place(self, name: str, room: int) -> int:
        """Return how much of `room` it can have beside what others use, with every job of fixed size where it is."""
        fixed = self._fixed[name].total()
        return min(room, fixed + self._beside.most(name, max(0, room - fixed)))
