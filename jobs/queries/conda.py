"""Whether hosts have a solver of conda."""

from jobs.models import InstanceGroup
from workers.group_rules import offer_of
from workers.models import Host

__all__ = ["has_conda"]


def has_conda(group: InstanceGroup | None) -> bool:
    """Return whether a host of the instance group has one; None: any host."""
    hosts = Host.objects.filter(removed_at=None).exclude(conda="")
    if group is None:
        return hosts.exists()
    offer = offer_of(group.resource_group)
    return any(offer.takes(host) for host in hosts)
