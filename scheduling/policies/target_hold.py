"""Detection of events that change targets under policy goodput: without any, targets are kept for ten seconds."""

from collections import Counter
from dataclasses import dataclass, replace

from scheduling.snapshot import JobView, Snapshot

__all__ = ["TARGET_HOLD_SECONDS", "TargetHold", "hold_targets", "is_held"]

#: Seconds for which targets are kept under policy goodput while nothing happens.
TARGET_HOLD_SECONDS = 10.0


@dataclass(frozen=True)
class TargetHold:
    """Time of the last new decision of targets, and a digest of what they depended on."""

    at: float
    digest: int


def is_held(since: float | None, now: float) -> bool:
    """Return whether targets that were decided at `since` are kept at `now`, unless something happens; None: never
    decided."""
    return since is not None and since <= now < since + TARGET_HOLD_SECONDS


def hold_targets(snapshot: Snapshot, before: TargetHold | None) -> tuple[Snapshot, TargetHold | None]:
    """Return the snapshot with the time since which its goodput groups keep their targets, and the state for the next
    call. Changes of remaining work and measurements count after ten seconds, all others at once."""
    if all(group.policy != "goodput" for group in snapshot.groups):
        return snapshot, None
    digest = _digest(snapshot)
    if before is None or before.digest != digest or not is_held(before.at, snapshot.at):
        return snapshot, TargetHold(snapshot.at, digest)
    groups = (replace(group, shared_at=before.at) if group.policy == "goodput" else group for group in snapshot.groups)
    return replace(snapshot, groups=tuple(groups)), before


def _digest(snapshot: Snapshot) -> int:
    slots = Counter((slot.ref.host, slot.resource_groups, slot.claimable, slot.device) for slot in snapshot.slots)
    return hash((snapshot.groups, frozenset(slots.items()), tuple(map(_requested, snapshot.jobs))))


def _requested(job: JobView) -> tuple[object, ...]:
    measured = None if job.profile is None or not job.profile.parameters else job.profile.largest_ranks
    return job.id, job.group, job.state == "PENDING", job.min_slots, job.max_slots, job.priority, measured
