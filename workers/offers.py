"""The rule of a resource group applied to hosts: which are members, and how many slots each offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from workers.models import Host, ResourceGroup
from workers.slot_formula import Attributes, FormulaError, parse

__all__ = ["Offer", "attributes", "offer_of"]

_facts = attrgetter("ncpus", "ngpus", "memory_bytes", "swap_bytes", "nprocs", "ncores", "nthreads", "virtual")


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
        """Whether it is a member."""
        if self.selection == ResourceGroup.Selection.STATIC:
            return host.name in self.listed
        return self._meets(attributes(host))

    def slots_of(self, host: Host) -> int:
        """Of a member; for GPU slots, those with the lowest indexes."""
        return self._slots(attributes(host))

    def slots(self, hosts: Iterable[Host]) -> dict[str, int]:
        """Name of each member -> how many slots it offers. Hosts that have left count nothing.

        The scheduler asks in each cycle, and of thousands of hosts most are alike: each kind is computed once.
        """

        @cache
        def of_kind(facts: tuple[Any, ...]) -> int | None:
            has = _attributes(*facts)
            return self._slots(has) if is_static or self._meets(has) else None

        is_static = self.selection == ResourceGroup.Selection.STATIC
        members = (host for host in hosts if host.state != Host.State.OFFLINE)
        if is_static:
            members = (host for host in members if host.name in self.listed)
        offered = ((host.name, of_kind(_facts(host))) for host in members)
        return {name: slots for name, slots in offered if slots is not None}

    def _meets(self, has: Attributes) -> bool:
        """False where the requirement cannot be computed."""
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
    return _attributes(*_facts(host))


def _attributes(
    ncpus: int,
    ngpus: int,
    memory_bytes: int,
    swap_bytes: int | None,
    nprocs: int | None,
    ncores: int | None,
    nthreads: int | None,
    virtual: bool,
) -> Attributes:
    maxswp = None if swap_bytes is None else swap_bytes // 1024**2
    return Attributes(ncpus, ngpus, memory_bytes // 1024**2, maxswp, nprocs, ncores, nthreads, int(virtual))
