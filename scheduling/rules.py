"""What other rules would do to everybody: the next plan with them, compared to the next plan without them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduling.schedule import decided
from scheduling.snapshot import GroupView, Snapshot

__all__ = ["Comparison", "Fate", "compare", "with_group"]


@dataclass(frozen=True)
class Fate:
    """What becomes of one job's target, where that is something else."""

    job: int
    before: int
    after: int
    #: It runs, and is stopped to continue later.
    stops: bool


@dataclass(frozen=True)
class Comparison:
    #: In order of job id.
    fates: tuple[Fate, ...]

    @property
    def moves(self) -> int:
        """Slots that another job gets than without the change, or that only one of the two ways leaves free."""
        more = sum(max(0, fate.after - fate.before) for fate in self.fates)
        fewer = sum(max(0, fate.before - fate.after) for fate in self.fates)
        return max(more, fewer)


def with_group(snapshot: Snapshot, group: GroupView) -> Snapshot:
    """With these rules for the group of that name."""
    return replace(snapshot, groups=tuple(group if view.name == group.name else view for view in snapshot.groups))


def compare(without: Snapshot, with_it: Snapshot) -> Comparison:
    """Both have the same jobs and slots, and other groups."""
    before, after = decided(without).placed, decided(with_it).placed
    fates = [
        Fate(job, before[job].target, after[job].target, after[job].preempt)
        for job in sorted(before)
        if before[job].target != after[job].target
    ]
    return Comparison(tuple(fates))
