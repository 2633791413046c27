"""What deploying an instance group means here: its hosts are reachable and offer GPUs. Nothing is installed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.models import Host, ResourceGroup
from workers.offers import offer_of

__all__ = ["Deployment", "HostReadiness", "deployed_on", "deployment", "hosts_for_deployment"]

_WHY_NOT = {
    Host.State.DRAINING: "It drains: trainings on it end or move off, and nothing new starts there.",
    Host.State.LOST: "It has not been heard of for a while: look at its executor.",
    Host.State.OFFLINE: "It is not there: start its executor.",
}


@dataclass(frozen=True)
class HostReadiness:
    name: str
    state: str
    #: GPUs that it offers to the group.
    slots: int
    #: A sentence, or "" where it is ready.
    why_not: str


@dataclass(frozen=True)
class Deployment:
    hosts: tuple[HostReadiness, ...]

    @property
    def ready(self) -> int:
        return sum(not host.why_not for host in self.hosts)

    @property
    def blocked(self) -> int:
        return len(self.hosts) - self.ready

    @property
    def slots(self) -> int:
        """GPUs of the hosts that are ready."""
        return sum(host.slots for host in self.hosts if not host.why_not)

    @property
    def text(self) -> str:
        if not self.hosts:
            return "Its resource group has no host with GPUs yet."
        hosts = "host is" if len(self.hosts) == 1 else "hosts are"
        return (
            f"{self.ready} of {len(self.hosts)} {hosts} ready, with {self.slots} GPU{'' if self.slots == 1 else 's'}."
        )


def deployment(resource_group: ResourceGroup) -> Deployment:
    """How it is now: the hosts named by the resource group, or all that offer GPUs to it."""
    return deployed_on(resource_group, hosts_for_deployment())


def hosts_for_deployment() -> list[Host]:
    return list(Host.objects.filter(removed_at__isnull=True).order_by("name"))


def deployed_on(resource_group: ResourceGroup, hosts: Sequence[Host]) -> Deployment:
    is_static = resource_group.selection == ResourceGroup.Selection.STATIC
    offer = offer_of(resource_group)
    there = [host for host in hosts if is_static or host.state != Host.State.OFFLINE]
    found = [_readiness(host, offer.slots_of(host)) for host in there if offer.takes(host)]
    return Deployment(tuple(host for host in found if is_static or host.slots))


def _readiness(host: Host, slots: int) -> HostReadiness:
    why_not = _WHY_NOT.get(Host.State(host.state), "" if slots else "It offers no GPU to the resource group.")
    return HostReadiness(host.name, str(host.state), slots, why_not)
