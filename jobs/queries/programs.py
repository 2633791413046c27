"""Programs that hosts have beside Tidepool, for packages of conda and for container images."""

from jobs.models import InstanceGroup
from workers.group_rules import offer_of
from workers.models import Host

__all__ = ["has_conda", "runs_images"]


def has_conda(group: InstanceGroup | None) -> bool:
    """Return whether a host of the instance group has a solver of conda; None: any host."""
    return _any_has("conda", group)


def runs_images(group: InstanceGroup | None) -> bool:
    """Return whether a host of the instance group runs container images; None: any host."""
    return _any_has("images", group)


def _any_has(field: str, group: InstanceGroup | None) -> bool:
    hosts = Host.objects.filter(removed_at=None).exclude(**{field: ""})
    if group is None:
        return hosts.exists()
    offer = offer_of(group.resource_group)
    return any(offer.takes(host) for host in hosts)
