"""One job of a group, as its sentence sees it, and the names of others for its owner."""

from collections import Counter
from typing import Any

from scheduling.explain.group_summary import GroupSummary, Served
from scheduling.policies.bundles import Bundle
from scheduling.policies.demand import Demand
from scheduling.snapshot import JobView

__all__ = ["Case", "Params", "label"]

Params = dict[str, Any]


def label(reader: JobView, other: JobView | None) -> dict[str, str]:
    """Return the name of another job for the owner of `reader`: its own name only if both have the same owner."""
    if other is None:
        return {"who": "ending"}
    if other.id == reader.id:
        return {"who": "itself"}
    if other.owner != reader.owner:
        return {"who": "stranger"}
    return {"name": other.name}


class Case:
    """One job of the group, with the figures of its reason. No property looks at every other job."""

    def __init__(self, summary: GroupSummary, demand: Demand) -> None:
        pool = summary.decision.pool
        self.summary = summary
        self.decision = summary.decision
        self.demand = demand
        self.me = summary.views[demand.id]
        self.placed = summary.placed[demand.id]
        #: Slots that the policy gives it.
        self.mine = summary.decision.shares.get(demand.id, 0)
        away = pool.away.get(demand.id, ())
        #: Slots that it holds and has not been told to give back; and of these, those that it shall leave.
        self.before = len(pool.held.get(demand.id, ())) + len(away)
        self.away = away + self.placed.makes_room
        self.is_fair_share = pool.group.policy == "fairshare"
        self.is_goodput = pool.group.policy == "goodput"
        self.is_weighted = pool.group.weighs_kinds and pool.kinds is not None
        #: Kind of GPU that it shall train on, where there are several.
        self.kind = self.placed.kind
        #: The most that it asks for, whatever of that it is offered.
        self.most = demand.max_slots if demand.scaling is None else self.me.max_slots
        #: The job, or the bundle that counts as one job with it, as its policy sees it.
        self.counted = summary.counted(demand)
        reservation = summary.decision.reservation
        #: The rule by which it starts before the first that waits, or "".
        self.filling = reservation.filling.get(demand.id, "") if reservation else ""

    @property
    def moving_off(self) -> list[str]:
        """Hosts that take nothing new, or that another job needs, and that it leaves in this cycle."""
        return sorted({ref.host for ref in set(self.away).intersection(self.placed.vacate)}) if self.away else []

    @property
    def moves_from(self) -> str | None:
        """The kind of GPU that it has or begins with, where it shall train on another."""
        kinds = self.decision.pool.kinds
        if self.kind is None or kinds is None:
            return None
        has = Counter(kinds[ref] for ref in (*self.placed.kept, *self.placed.claim, *self.placed.vacate))
        others = (kind for kind in has if kind != self.kind and kind in self.demand.scalings)
        return max(others, key=lambda kind: (has[kind], kind), default=None)

    @property
    def others(self) -> Served:
        """The other jobs that get anything."""
        served, counted = self.summary.served, self.counted
        share = self.summary.shares.get(counted.id)
        return served if share is None else served.without(counted, share)

    @property
    def first_other(self) -> Demand | None:
        """The other job with slots that is served first."""
        for demand in self.summary.first_served:
            if demand.id != self.counted.id:
                return demand
        return None

    @property
    def held_back(self) -> frozenset[int]:
        """Return the trainings of its study that wait for the job with the reservation."""
        bundle = self.decision.bundles.get(self.counted.id)
        return bundle.held_back if bundle is not None else frozenset()

    @property
    def study(self) -> Params:
        """Return the figures of its study, which counts as one training with it; none for a job that counts alone."""
        bundle = self.decision.bundles.get(self.counted.id)
        if bundle is None:
            return {}
        return {
            "study_slots": self.summary.shares.get(self.counted.id, 0),
            "study_trainings": self.summary.trainings[self.counted.id],
            "study_priority": self.counted.priority,
        }

    @property
    def first_waiting(self) -> Demand | None:
        """The job with the reservation."""
        reservation = self.decision.reservation
        if reservation is None:
            return None
        return self.summary.counted(self.decision.demands[self.summary.places[reservation.job]])

    @property
    def preemption(self) -> bool:
        """Return whether this group's policy may take slots from running jobs."""
        return self.decision.pool.group.preemption and self.decision.pool.group.policy != "fifo"

    @property
    def goodput_limit(self) -> str:
        """Return why the job is offered no more than it has, or ""."""
        scaling = self.demand.scaling
        if scaling is None or scaling.limit == "maximum":
            return ""
        if self.placed.target != self.demand.max_slots or self.placed.target == self.most:
            return ""
        return scaling.limit

    def share(self, demand: Demand) -> int:
        """Return the slots of a job, or of a bundle by its own demand."""
        shares = self.summary.shares if self._bundle(demand) else self.decision.shares
        return shares.get(demand.id, 0)

    def _bundle(self, demand: Demand) -> Bundle | None:
        bundle = self.decision.bundles.get(demand.id)
        return bundle if bundle is not None and bundle.demand is demand else None

    def label(self, job: int) -> dict[str, str]:
        return label(self.me, self.summary.views.get(job))

    def labelled(self, demand: Demand) -> Params:
        bundle = self._bundle(demand)
        return {
            **({} if bundle is None else {"trainings": self.summary.trainings[bundle.demand.id]}),
            "job": demand.id,
            **self.label(demand.id),
            "slots": self.share(demand),
            "priority": demand.priority,
            "min_slots": demand.min_slots,
            "max_slots": demand.max_slots,
        }
