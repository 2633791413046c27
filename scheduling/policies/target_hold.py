"""Detection of events that change targets under policy goodput: without any, targets are kept for ten seconds."""

from collections import Counter
from dataclasses import dataclass, replace

from scheduling.policies.shares import SETTLED_SECONDS
from scheduling.snapshot import JobView, Snapshot

__all__ = ["Settled", "settled"]


@dataclass(frozen=True)
class Settled:
    """Time of the last new decision of targets, and a digest of what they depended on."""

    at: float
    digest: int


def settled(seen: Snapshot, before: Settled | None) -> tuple[Snapshot, Settled | None]:
    """The snapshot, with the moment since which its groups under policy goodput keep their targets; and what to give
    with the next one. Work and measures move all the time: they count after ten seconds, all else at once."""
    if all(group.policy != "goodput" for group in seen.groups):
        return seen, None
    digest = _digest(seen)
    if before is None or before.digest != digest or not before.at <= seen.at < before.at + SETTLED_SECONDS:
        return seen, Settled(seen.at, digest)
    groups = (replace(group, shared_at=before.at) if group.policy == "goodput" else group for group in seen.groups)
    return replace(seen, groups=tuple(groups)), before


def _digest(seen: Snapshot) -> int:
    slots = Counter((slot.ref.host, slot.resource_groups, slot.claimable, slot.device) for slot in seen.slots)
    return hash((seen.groups, frozenset(slots.items()), tuple(map(_asked, seen.jobs))))


def _asked(job: JobView) -> tuple[object, ...]:
    measured = None if job.profile is None or not job.profile.parameters else job.profile.largest_ranks
    return job.id, job.group, job.state == "PENDING", job.min_slots, job.max_slots, job.priority, measured
