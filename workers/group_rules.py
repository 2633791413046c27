"""The rule of a resource group applied to hosts: which are members, and how many slots each offers."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from workers.models import Host, ResourceGroup
from workers.slot_formula import Attributes, FormulaError, parse

__all__ = ["Offer", "attributes", "offer_of"]


@dataclass(frozen=True)
class Offer:
    """A group's rule, as it is stored or as somebody is about to store it."""

    slot_rule: str
    kind: str = ResourceGroup.Kind.GPU
    selection: str = ResourceGroup.Selection.DYNAMIC
    requirement: str = ""
    #: Names; of a static selection.
    listed: frozenset[str] = frozenset()

    def takes(self, host: Host) -> bool:
        """Return whether it is a member."""
        if self.selection == ResourceGroup.Selection.STATIC:
            return host.name in self.listed
        return self._meets(attributes(host))

    def slots_of(self, host: Host) -> int:
        """The number of slots that a member offers; of its GPUs, those with the lowest indexes."""
        return self._slots(attributes(host))

    def slots(self, hosts: Iterable[Host], *, were_there: bool = False) -> dict[str, int]:
        """Name of each member -> how many slots it offers. Hosts that have left count nothing, unless `were_there`:
        then what they offered is asked for.

        The scheduler asks in each cycle, and of thousands of hosts most are alike: each kind is computed once.
        """
        there = ((host.name, attributes(host)) for host in hosts if were_there or host.state != Host.State.OFFLINE)
        meets, slots = cache(self._meets), cache(self._slots)
        if self.selection == ResourceGroup.Selection.STATIC:
            return {name: slots(has) for name, has in there if name in self.listed}
        return {name: slots(has) for name, has in there if meets(has)}

    def _meets(self, has: Attributes) -> bool:
        """Return whether it is met; False where the requirement cannot be computed."""
        if not self.requirement.strip():
            return True
        try:
            return parse(self.requirement).is_met(has)
        except FormulaError:
            return False

    def _slots(self, has: Attributes) -> int:
        """0 where the rule cannot be computed."""
        try:
            offered = parse(self.slot_rule).slots(has)
        except FormulaError:
            return 0
        return min(offered, has.ngpus) if self.kind == ResourceGroup.Kind.GPU else offered


def offer_of(group: ResourceGroup) -> Offer:
    is_static = group.selection == ResourceGroup.Selection.STATIC
    listed = frozenset(host.name for host in group.hosts.all()) if is_static else frozenset()
    return Offer(group.slot_rule, group.kind, group.selection, group.requirement, listed)


def attributes(host: Host) -> Attributes:
    return Attributes(
        ncpus=host.ncpus,
        ngpus=host.ngpus,
        maxmem=host.memory_bytes // 1024**2,
        maxswp=None if host.swap_bytes is None else host.swap_bytes // 1024**2,
        nprocs=host.nprocs,
        ncores=host.ncores,
        nthreads=host.nthreads,
        virtual=int(host.virtual),
    )
