"""Hosts whose slots nobody may claim now: the cause of a wait that would be over with them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scheduling.snapshot import SlotView

__all__ = ["AbsentHosts", "absent_hosts"]


@dataclass(frozen=True)
class AbsentHosts:
    """Hosts out of service of one resource group."""

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


def absent_hosts(free_out_of_service: Iterable[SlotView], resource_group: str) -> AbsentHosts:
    """Return the hosts of these slots that the resource group would offer."""
    offered = [slot for slot in free_out_of_service if resource_group in slot.resource_groups]
    return AbsentHosts(Counter(slot.ref.host for slot in offered), {slot.ref.host: slot.out for slot in offered})
