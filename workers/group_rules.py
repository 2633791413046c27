"""Rule of a resource group applied to hosts: the members, and the number of slots of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from workers.models import Host, ResourceGroup
from workers.slot_formula import Attributes, FormulaError, parse

__all__ = ["Offer", "attributes", "offer_of"]


@dataclass(frozen=True)
class Offer:
    """Rule of a resource group, stored or drafted."""

    slot_rule: str
    kind: str = ResourceGroup.Kind.GPU
    selection: str = ResourceGroup.Selection.DYNAMIC
    requirement: str = ""
    #: Names of the hosts of a static selection.
    listed: frozenset[str] = frozenset()

    def takes(self, host: Host) -> bool:
        """Return whether the host is a member."""
        if self.selection == ResourceGroup.Selection.STATIC:
            return host.name in self.listed
        return self._meets(attributes(host))

    def slots_of(self, host: Host) -> int:
        """Return the number of slots that a member offers; these are its GPUs with the lowest indexes."""
        return self._slots(attributes(host))

    def slots(self, hosts: Iterable[Host], *, were_there: bool = False) -> dict[str, int]:
        """Return the number of slots of each member, by name. Hosts that have left are omitted, unless `were_there`.

        The scheduler calls this in each cycle. Most hosts are alike: compute each set of attributes once.
        """
        there = ((host.name, attributes(host)) for host in hosts if were_there or host.state != Host.State.OFFLINE)
        meets, slots = cache(self._meets), cache(self._slots)
        if self.selection == ResourceGroup.Selection.STATIC:
            return {name: slots(has) for name, has in there if name in self.listed}
        return {name: slots(has) for name, has in there if meets(has)}

    def _meets(self, has: Attributes) -> bool:
        """Return whether the attributes meet the requirement; False if it cannot be computed."""
        if not self.requirement.strip():
            return True
        try:
            return parse(self.requirement).is_met(has)
        except FormulaError:
            return False

    def _slots(self, has: Attributes) -> int:
        """Return the number of slots; 0 if the rule cannot be computed."""
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
