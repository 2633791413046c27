"""Who leaves slots that are taken out of service, or out of a group: the next plan without them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from scheduling.schedule import decided
from scheduling.snapshot import SlotRef, SlotView, Snapshot

__all__ = ["Move", "lost_slots", "moves", "without_host"]


@dataclass(frozen=True)
class Move:
    """What becomes of a job that holds some of these slots."""

    job: int
    #: How many of them it holds now, and keeps until it ends: fixed-size jobs finish where they are.
    held: int
    kept: int
    elastic: bool
    #: How many slots it shall have then, of these and others; 0: it is stopped, and continues later.
    target: int


def without_host(snapshot: Snapshot, host: str) -> Snapshot:
    """As if the host were draining."""
    return replace(
        snapshot,
        slots=tuple(replace(slot, claimable=False) if slot.ref.host == host else slot for slot in snapshot.slots),
    )


def lost_slots(before: Snapshot, after: Snapshot, resource_group: str) -> set[SlotRef]:
    """Slots that the resource group offers before, and not any more after."""

    def offered(slots: tuple[SlotView, ...]) -> set[SlotRef]:
        return {slot.ref for slot in slots if resource_group in slot.resource_groups}

    return offered(before.slots) - offered(after.slots)


def moves(after: Snapshot, taken: Set[SlotRef]) -> list[Move]:
    """`after` is the snapshot without the slots `taken`. Jobs that hold any of them and may use none of them there."""
    views = {job.id: job for job in after.jobs}
    groups = {group.name: group.resource_group for group in after.groups}
    held: dict[int, set[SlotRef]] = {}
    for slot in after.slots:
        job = views.get(slot.held_by) if slot.held_by is not None else None
        if job is None or slot.vacating or slot.ref not in taken:
            continue
        if not slot.claimable or groups[job.group] not in slot.resource_groups:
            held.setdefault(job.id, set()).add(slot.ref)
    placed = decided(after).placed if held else {}
    found = []
    for number, slots in sorted(held.items()):
        then = placed[number]
        kept = slots & (set(then.kept) - set(then.leaving))
        found.append(Move(number, len(slots), len(kept), views[number].elastic, then.target))
    return found
