"""Facts about a group's jobs together, counted once for the sentences of all of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from scheduling.explain.absent_hosts import AbsentHosts
from scheduling.placement.slot_choice import JobSlots, handed_over
from scheduling.policies.backfill import Reservation
from scheduling.policies.demand import Demand
from scheduling.sharing.decision import Decision
from scheduling.snapshot import JobView

__all__ = ["GroupSummary", "OtherGroups", "Served", "summarize"]


class Served(NamedTuple):
    """Jobs that the policy gives slots. A bundle counts as one job."""

    #: Number of jobs.
    jobs: int
    #: Number of slots that they get together.
    slots: int
    #: Number of jobs that get their maximum.
    at_maximum: int

    def without(self, demand: Demand, share: int) -> "Served":
        return Served(
            self.jobs - 1,
            self.slots - share,
            self.at_maximum - (share == demand.max_slots),
        )


@dataclass(frozen=True)
class OtherGroups:
    """Facts about the snapshot's other groups and jobs."""

    #: Every job of the snapshot.
    views: Mapping[int, JobView]
    #: Jobs of other groups -> how many slots, useful to this group, they give back from this cycle on.
    foreign: Mapping[int, int]
    #: Hosts of the group's resource group that are out of service.
    absent: AbsentHosts


@dataclass(frozen=True)
class GroupSummary:
    decision: Decision
    placed: Mapping[int, JobSlots]
    views: Mapping[int, JobView]
    absent: AbsentHosts
    served: Served
    #: The first two of them, in the order in which they are served.
    first_served: tuple[Demand, ...]
    #: Holder -> how many slots, useful to this group, it is giving back from this cycle on.
    givers: Mapping[int, int]
    givers_slots: int
    #: Free slots that nobody claims in this cycle: too few for a job that waits.
    free_left: int
    #: Job -> its place among the demands.
    places: Mapping[int, int]
    #: Slots of each job, and of each bundle under the id of its demand.
    shares: Mapping[int, int]
    #: Member of a bundle -> the bundle's demand.
    counted_as: Mapping[int, Demand]

    @cached_property
    def capacity(self) -> int:
        """Slots that the group's jobs share. They exceed what the policy may divide only while no job may be
        stopped."""
        return max(self.decision.capacity, self.served.slots)

    @cached_property
    def entitlement(self) -> Mapping[str, int | float]:
        """Return the group's figures for sentences where its part is less than its jobs could use; else none."""
        entitlement = self.decision.entitlement
        if entitlement is None or entitlement.used >= entitlement.wants or entitlement.room >= entitlement.total:
            return {}
        figures = {
            "group_room": entitlement.room,
            "group_total": entitlement.total,
            "group_deserved": round(float(entitlement.deserved), 2),
        }
        if entitlement.quota is not None:
            figures["group_quota"] = entitlement.quota
        if entitlement.limit is None or not entitlement.weight:
            figures["group_weight"] = entitlement.weight
        if entitlement.limit is not None and entitlement.draining:
            figures["group_draining"] = entitlement.draining
        return figures

    @cached_property
    def trainings(self) -> Mapping[int, int]:
        """Bundle, by the id of its demand -> the number of its members that have slots."""
        return Counter(
            self.counted_as[job].id for job, slots in self.decision.shares.items() if slots and job in self.counted_as
        )

    def reservation_in_line(self, demand: Demand) -> Reservation | None:
        """Return the reservation in the line that the job waits in."""
        reservations = self.decision.reservations
        return reservations.get(self.counted(demand).priority, reservations.get(None))

    def ahead_of(self, demand: Demand) -> Demand | None:
        """Return the first waiting job ahead of this one that would fit: no job behind it may overtake it."""
        reservation = self.reservation_in_line(demand)
        place = self.places[reservation.job] if reservation else len(self.places)
        return self.counted(self.decision.demands[place]) if place < self.places[demand.id] else None

    def counted(self, demand: Demand) -> Demand:
        """Return the demand as its policy sees it: of a bundle, that of all members."""
        return self.counted_as.get(demand.id, demand)


def summarize(decision: Decision, placed: Mapping[int, JobSlots], others: OtherGroups) -> GroupSummary:
    demands = decision.demands
    counted_as = {one.id: bundle.demand for bundle in decision.bundles.values() for one in bundle.members}
    counted, shares = _counted(decision, counted_as)
    served = [(demand, shares[demand.id]) for demand in counted if demand.id in shares]
    givers = _givers(decision, placed, others.foreign)
    return GroupSummary(
        decision=decision,
        placed=placed,
        views=others.views,
        absent=others.absent,
        served=Served(
            len(served),
            sum(share for _, share in served),
            sum(share == demand.max_slots for demand, share in served),
        ),
        first_served=tuple(demand for demand, _ in served[:2]),
        givers=givers,
        givers_slots=sum(givers.values()),
        # Jobs on one host claim slots that are kept for them apart.
        free_left=decision.pool.free_count
        - sum(len(slots.claim) for job, slots in placed.items() if not others.views[job].one_host),
        places={demand.id: place for place, demand in enumerate(demands)},
        shares=shares,
        counted_as=counted_as,
    )


def _counted(decision: Decision, counted_as: Mapping[int, Demand]) -> tuple[Iterable[Demand], Mapping[int, int]]:
    """Return the demands and the slots of jobs, with bundles in place of their members."""
    if not counted_as:
        return decision.demands, decision.shares
    demands = {one.id: one for one in (counted_as.get(demand.id, demand) for demand in decision.demands)}
    shares: dict[int, int] = {}
    for job, slots in decision.shares.items():
        counted = counted_as[job].id if job in counted_as else job
        shares[counted] = shares.get(counted, 0) + slots
    return demands.values(), shares


def _givers(decision: Decision, placed: Mapping[int, JobSlots], foreign: Mapping[int, int]) -> dict[int, int]:
    givers = {holder: len(refs) for holder, refs in decision.pool.coming.items()}
    own = {job: len(refs) for job, refs in handed_over(decision.pool.held, placed).items()}
    for job, count in chain(foreign.items(), own.items()):
        givers[job] = givers.get(job, 0) + count
    return dict(sorted(givers.items()))
