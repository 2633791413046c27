"""Demands of jobs on their group, and the orders in which jobs are served or stopped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from scheduling.policies.speedups import JobScaling
from scheduling.snapshot import JobView

__all__ = ["Commitment", "Demand", "by_priority", "by_submission", "cheapest_first"]

_ID, _SUBMITTED_AT, _PRIORITY = attrgetter("id"), attrgetter("submitted_at"), attrgetter("priority")


class Commitment(NamedTuple):
    """Slots that no other job takes from their holder while a job with a reservation waits."""

    slots: int
    #: Latest time at which the holder gives them up (Unix seconds); None: unknown.
    ends_at: float | None
    #: Whether the holder is an elastic job that did not start before the one that waits.
    is_elastic: bool = False


@dataclass(slots=True)  # not frozen, like others of which there are very many: that makes one eight times as slowly
class Demand:
    """Demand of one job for its group's slots."""

    id: int
    priority: int
    submitted_at: float
    #: A job that is not elastic has min_slots == max_slots.
    min_slots: int
    max_slots: int
    #: True if the job holds slots that it has not been told to give back.
    running: bool
    #: Number of those slots that are in service. 0 unless running.
    held: int = 0
    #: True before the job has run for its group's minimum run time: it may be shrunk, not stopped.
    protected: bool = False
    #: Number of held slots that the group leaves the job, where other groups take something back. None: all.
    limit: int | None = None
    #: See `scheduling.snapshot.JobView`.
    lasts: float | None = None
    ends_at: float | None = None
    backfilled_for: int | None = None
    #: True if jobs ahead in line may stop it again: it is elastic, and its group stops nobody too early.
    may_give_way: bool = False
    #: GPU-seconds of work since its last checkpoint, which are lost if it is stopped.
    loses: float = 0.0
    #: False: stopped, it begins from nothing.
    continues: bool = True
    #: Worth of GPUs to an elastic job, where its policy asks for that (`max_slots` is then the most that it is
    #: offered), GPU-seconds that it has used, and what it shall have by the plan before.
    scaling: JobScaling | None = None
    gpu_seconds: float = 0.0
    target: int | None = None
    #: Where there are several kinds of GPU: what those of each are worth to it, slots in service that it holds of each,
    #: and the kind of the plan before; `scaling` is then of the kind that it shall have.
    scalings: Mapping[str, JobScaling] = field(default_factory=dict)
    held_on: Mapping[str, int] = field(default_factory=dict)
    target_kind: str | None = None
    elastic: bool = False
    #: See `scheduling.policies.gpu_kinds.Offer`.
    host_kinds: frozenset[str] = frozenset()
    #: Study whose jobs count as one, and the job's rank in it; see `scheduling.policies.bundles`.
    bundle: int | None = None
    bundle_rank: int = 0
    #: See `scheduling.snapshot.JobView.is_restarting`.
    restarting: bool = False
    #: Slots that each of its GPUs counts as; see `scheduling.host_shares`.
    per_gpu: int = 1
    #: See `scheduling.snapshot.JobView.changes`.
    changes: int = 0

    @property
    def kept(self) -> int:
        """Slots that it keeps if no job of its group takes any: its own maximum may have been lowered below what
        it holds, or its group gives something back."""
        kept = min(self.held, self.max_slots)
        return kept if self.limit is None else min(kept, self.limit)

    @property
    def least(self) -> int:
        """The least that it trains on, if it runs: what it holds may be below its minimum."""
        return min(self.kept, self.min_slots)

    @property
    def settled_kind(self) -> str | None:
        """Return the kind of GPU of the plan before; without one, the kind of its slots. None: they are of several."""
        if self.target_kind in self.scalings:
            return self.target_kind
        kinds = [kind for kind, count in self.held_on.items() if count and kind in self.scalings]
        return kinds[0] if len(kinds) == 1 else None

    def on(self, kind: str, slots: int) -> "Demand":
        """Return the demand once it is decided that the job trains on so many GPUs of this kind."""
        scaling = self.scalings[kind]
        return replace(self, scaling=scaling, max_slots=max(slots, min(self.max_slots, scaling.most)))

    def waiting_again(self, view: JobView) -> "Demand":
        """Return the demand once the job is stopped."""
        least = view.min_slots if view.elastic else view.max_slots
        return replace(
            self, min_slots=least, max_slots=max(least, self.max_slots), running=False, held=0, protected=False,
            limit=None, ends_at=None, backfilled_for=None, held_on={},
        )  # fmt: skip

    def ends(self, now: float) -> float | None:
        """Return until when it holds slots at the most, if it runs or starts now."""
        return self.ends_at if self.running or self.lasts is None else now + self.lasts

    def commits(self, slots: int, now: float, first: int | None = None) -> Commitment:
        """Return its commitment of these slots while the job `first` waits."""
        return Commitment(slots, self.ends(now), self.elastic and (first is None or self.backfilled_for != first))


def by_priority(demands: Iterable[Demand]) -> list[Demand]:
    """Sort by priority, then by the time of submission, then by id."""
    return sorted(by_submission(demands), key=_PRIORITY, reverse=True)


def by_submission(demands: Iterable[Demand]) -> list[Demand]:
    return sorted(sorted(demands, key=_ID), key=_SUBMITTED_AT)


def cheapest_first(demands: Sequence[Demand]) -> list[Demand]:
    """In the order in which they are stopped where some have to be: first who can go on from a checkpoint, of these who
    loses least since it, of equals the last of `demands`, which are in the order in which they are served."""
    last_first = demands[::-1]
    return sorted(last_first, key=lambda demand: (not demand.continues, demand.loses))
