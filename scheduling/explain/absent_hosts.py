"""Hosts whose slots nobody may claim now: the cause of a wait that would be over with them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scheduling.snapshot import GroupView, SlotView

__all__ = ["AbsentHosts", "absent_hosts"]


@dataclass(frozen=True)
class AbsentHosts:
    """Hosts of one resource group that are out of service, or do not keep trainings apart as a group demands."""

    #: Host -> number of its free slots that are out of service.
    slots: Counter[str] = field(default_factory=Counter)
    #: Host -> its state, such as "draining"; "": not known.
    states: dict[str, str] = field(default_factory=dict)

    def figures(self, missing: int, *, on_one_host: bool = False) -> dict[str, Any]:
        """Return the hosts as params of a sentence if their slots are enough for what a job lacks, else none."""
        found = {host: count for host, count in self.slots.items() if not on_one_host or count >= missing}
        if sum(found.values()) < missing:
            return {}
        hosts = [{"host": host, "slots": found[host], "state": self.states[host]} for host in sorted(found)]
        return {"absent": hosts} if hosts else {}


def absent_hosts(
    free_out_of_service: Iterable[SlotView], all_slots: Iterable[SlotView], group: GroupView
) -> AbsentHosts:
    """Return the hosts of these slots that the group's resource group would offer.

    all_slots: the group would take those in service, too, if their hosts kept trainings apart as it demands.
    """
    whole = group.part_of or group.resource_group
    offered = {slot.ref: slot.out for slot in free_out_of_service if whole in slot.resource_groups}
    if group.part_of:
        in_service = [slot for slot in all_slots if slot.claimable and whole in slot.resource_groups]
        offered |= {slot.ref: "open" for slot in in_service if group.resource_group not in slot.resource_groups}
    states = {ref.host: state for ref, state in offered.items()}
    return AbsentHosts(Counter(ref.host for ref in offered), states)
