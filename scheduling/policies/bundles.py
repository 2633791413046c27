"""Bundles: the trainings of a study count as one job towards the others of their instance group.

A policy sees one demand for each bundle: the highest priority, the sum of what its members hold, and the sum of what
they ask for at most. At the least it needs what one member needs, as one elastic job would shrink to its minimum, or
what the members need together that the policy may not stop. The bundle's slots are then divided inside, in the order
of rank and submission:

1. members that run keep their minimum, as far as the slots reach, and what they hold where nothing is shrunk;
2. members that wait start, none before the first that does not fit;
3. the rest goes evenly to all that have slots, up to their maximum.

So a member that runs is never stopped for one of its bundle that waits: such a one starts only on slots that are too
few for those that stop. None is stopped where shrinking others of the bundle is enough. Slots that a bundle cannot use
are divided among the other jobs.

A bundle of one job is that job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace

from scheduling.policies.backfill import Reservation
from scheduling.policies.demand import Demand
from scheduling.snapshot import GroupView

__all__ = ["KEEPS_ALL", "Bundle", "Folded", "Terms", "fold", "in_bundles", "spare_members", "terms_of"]

#: Job or bundle -> slots.
Slots = Mapping[int, int]


@dataclass(frozen=True)
class Terms:
    """The policy's rules for slots of running members: what is taken for other jobs, and for members that wait."""

    #: Whether members shrink for each other.
    shares: bool = False
    #: Whether elastic members are stopped where the bundle has too few slots, and whether those of fixed size are.
    stops_elastic: bool = False
    stops_fixed: bool = False

    def stops(self, member: Demand) -> bool:
        return not member.protected and (self.stops_elastic if member.elastic else self.stops_fixed)


#: Members shrink for each other, and none is stopped.
KEEPS_ALL = Terms(shares=True)


def terms_of(group: GroupView) -> Terms:
    if not group.preemption or group.policy == "fifo":
        return Terms()
    if group.policy == "priority":
        return Terms(stops_elastic=True, stops_fixed=True)
    return Terms(shares=True, stops_elastic=True)


@dataclass(frozen=True)
class Bundle:
    #: The demand of all members together, under the id of the first that runs, or else of the first.
    demand: Demand
    #: Members in the order in which they are served.
    members: tuple[Demand, ...]
    terms: Terms
    #: Members that wait for a job before them, which has a reservation: they would keep slots that it needs.
    held_back: frozenset[int] = frozenset()

    def divided(self, slots: int) -> dict[int, int]:
        """Return the slots of each member of `slots`. Members that are missing wait, or are stopped."""
        given, spare = self._kept(slots)
        has_room = True
        for member in self.members:
            if not member.running and has_room and member.id not in self.held_back:
                has_room = member.min_slots <= spare
                if has_room:
                    given[member.id] = member.min_slots
                    spare -= member.min_slots
        # Growth that is not taken back would keep out the one that waits.
        return self._filled(given, spare) if has_room or self.terms.shares else given

    def _kept(self, slots: int) -> tuple[dict[int, int], int]:
        """Return what members that run keep, and the slots that are left."""
        given: dict[int, int] = {}
        running = [member for member in self.members if member.running]
        for member in sorted(running, key=self.terms.stops):
            if member.least <= slots or not self.terms.stops(member):
                given[member.id] = member.least
                slots -= member.least
        going_on = [member for member in running if member.id in given]
        for member in going_on if not self.terms.shares else ():
            more = max(0, min(member.kept - given[member.id], slots))
            given[member.id] += more
            slots -= more
        for member in going_on:
            need = member.min_slots - given[member.id]
            if 0 < need <= slots:
                given[member.id] += need
                slots -= need
        return given, slots

    def _filled(self, given: dict[int, int], spare: int) -> dict[int, int]:
        """Give spare slots one by one to the member that has fewest; of equals to who is served first."""
        most = {member.id: member.max_slots for member in self.members}
        line = [(given[one.id], place, one.id) for place, one in enumerate(self.members) if one.id in given]
        heap = [entry for entry in line if entry[0] < most[entry[2]]]
        heapify(heap)
        while heap and spare > 0:
            slots, place, job = heap[0]
            given[job] = slots + 1
            spare -= 1
            if slots + 1 < most[job]:
                heapreplace(heap, (slots + 1, place, job))
            else:
                heappop(heap)
        return given


@dataclass(frozen=True)
class Folded:
    """Demands of a group in the order in which they are served, with one for each bundle."""

    demands: tuple[Demand, ...]
    #: Bundles by the id of their demand.
    bundles: Mapping[int, Bundle]

    def divided(self, slots: Slots) -> dict[int, dict[int, int]]:
        """Bundle -> slots of its members, of each that has any."""
        return {job: bundle.divided(slots[job]) for job, bundle in self.bundles.items() if job in slots}

    def unfolded(self, slots: Slots) -> dict[int, int]:
        """Return the slots of each job."""
        found = {job: count for job, count in slots.items() if job not in self.bundles}
        for members in self.divided(slots).values():
            found |= members
        return found

    def corrected(self, slots: Slots, reservations: Iterable[Reservation]) -> "Folded | None":
        """Return bundles that ask for no more than they can use of these slots, without starting a member for good
        before the job of a reservation. None: they already do."""
        first = next(iter(reservations), None)
        changed = {}
        for job, given in self.divided(slots).items():
            bundle = self.bundles[job]
            if first is not None and (too_early := self._too_early(bundle, given, first)):
                bundle = replace(bundle, held_back=bundle.held_back | too_early)
                given = bundle.divided(slots[job])
            most = max(sum(given.values()), bundle.demand.min_slots)
            if most < slots[job]:
                bundle = replace(bundle, demand=replace(bundle.demand, max_slots=most))
            if bundle is not self.bundles[job]:
                changed[job] = bundle
        if not changed:
            return None
        bundles = {**self.bundles, **changed}
        return Folded(tuple(bundles[one.id].demand if one.id in bundles else one for one in self.demands), bundles)

    def _too_early(self, bundle: Bundle, given: Slots, first: Reservation) -> frozenset[int]:
        """Return members that would start although the job of the reservation comes before them, and that would not
        give way to it. Without preemption the bundle's own place decides."""
        if not bundle.terms.shares:
            return frozenset()
        before = next(demand for demand in self.demands if demand.id == first.job)
        starting = (one for one in bundle.members if not one.running and one.id in given and not one.may_give_way)
        # The policy itself lets the first of a bundle start.
        others = (one for one in starting if one.id != bundle.demand.id)
        return frozenset(one.id for one in others if _comes_later(one, bundle, before))

    def reservation(self, found: Reservation, slots: Slots) -> Reservation:
        """Return the reservation with members in place of bundles. `slots`: those of each job."""
        filling, stopping = dict(found.filling), set(found.stopping)
        first = next(demand for demand in self.demands if demand.id == found.job)
        for job, bundle in self.bundles.items():
            starting = [one for one in bundle.members if one.id in slots and not one.running]
            if (rule := filling.pop(job, None)) is not None:
                filling |= {one.id: rule for one in starting}
            elif bundle.demand.running:
                # A study that goes on and on gives way in the end, as its trainings would one by one.
                later = (one for one in starting if one.may_give_way and _comes_later(one, bundle, first))
                filling |= {one.id: "gives_way" for one in later}
            if job in stopping:
                stopping |= {one.id for one in bundle.members if one.running}
        return replace(found, filling=filling, stopping=frozenset(stopping))


def _comes_later(member: Demand, bundle: Bundle, first: Demand) -> bool:
    place = -bundle.demand.priority, member.submitted_at, member.id
    return place > (-first.priority, first.submitted_at, first.id)


def fold(demands: Sequence[Demand], capacity: int, terms: Terms) -> Folded | None:
    """Fold each bundle into one demand, at the place of its first member. None: there is no bundle.

    A member that waits and would not fit into `capacity` stays apart.
    """
    members: dict[int, list[Demand]] = defaultdict(list)
    for demand in demands:
        if demand.bundle is not None and (demand.running or demand.min_slots <= capacity):
            members[demand.bundle].append(demand)
    by_number = {number: _bundle(ones, terms) for number, ones in members.items() if len(ones) > 1}
    if not by_number:
        return None
    bundle_of = {one.id: bundle for bundle in by_number.values() for one in bundle.members}
    folded = {}
    for demand in demands:
        one = bundle_of[demand.id].demand if demand.id in bundle_of else demand
        folded[one.id] = one
    return Folded(tuple(folded.values()), {bundle.demand.id: bundle for bundle in by_number.values()})


def _bundle(ones: Iterable[Demand], terms: Terms) -> Bundle:
    members = tuple(sorted(ones, key=_inside))
    running = [member for member in members if member.running]
    counted = running or members
    stopped_for = {member.backfilled_for for member in running}
    demand = replace(
        counted[0],
        priority=max(member.priority for member in members),
        submitted_at=min(member.submitted_at for member in members),
        min_slots=_floor(running, terms) if running else members[0].min_slots,
        max_slots=sum(member.max_slots for member in members),
        held=sum(member.kept for member in running),
        protected=any(member.protected for member in running),
        limit=None,
        # More trainings of the study may follow: nobody knows its end.
        lasts=None,
        ends_at=None,
        backfilled_for=stopped_for.pop() if len(stopped_for) == 1 else None,
        may_give_way=all(member.may_give_way for member in counted),
        loses=sum(member.loses for member in running),
        continues=all(member.continues for member in counted),
        scaling=None,
        scalings={},
        elastic=all(member.elastic for member in counted),
    )
    return Bundle(demand, members, terms)


def _floor(running: Sequence[Demand], terms: Terms) -> int:
    """Return the slots that members keep in any case; if all may be stopped, those that one of them needs."""
    firm = sum(member.least for member in running if not terms.stops(member))
    least = [member.least for member in running if member.least] or [member.min_slots for member in running]
    return firm or min(least)


def in_bundles(demands: Sequence[Demand]) -> Sequence[Demand]:
    """Return demands in the order of service with the members of each bundle side by side, at the first one's place."""
    members: dict[int, list[Demand]] = defaultdict(list)
    for demand in demands:
        if demand.bundle is not None:
            members[demand.bundle].append(demand)
    if not members:
        return demands
    found: list[Demand] = []
    for demand in demands:
        if demand.bundle is None:
            found.append(demand)
        else:
            found += sorted(members.pop(demand.bundle, ()), key=_inside)
    return found


def spare_members(running: Iterable[Demand]) -> dict[int, int]:
    """Return the running members that are stopped before jobs that count alone, where other groups take slots back ->
    place in their bundle. One member of each bundle counts as its job."""
    members: dict[int, list[Demand]] = defaultdict(list)
    for demand in running:
        if demand.bundle is not None:
            members[demand.bundle].append(demand)
    found: dict[int, int] = {}
    for ones in members.values():
        ones.sort(key=_inside)
        able = [one for one in ones if one.elastic and not one.protected]
        first = 0 if len(able) < len(ones) else 1
        found |= {one.id: place for place, one in enumerate(able, start=1) if place > first}
    return found


def _inside(member: Demand) -> tuple[int, float, int]:
    return -member.bundle_rank, member.submitted_at, member.id
