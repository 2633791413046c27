"""A named environment that one host has and another one is preparing."""

from django.utils import timezone

from jobs.models import HostEnvironment, NamedEnvironment
from workers.models import Host

__all__ = ["prepared_environment"]

_GB = 10**9


def prepared_environment(name: str = "language", lines: str = "timm>=1.0") -> NamedEnvironment:
    """Create an environment, which the first host has, the second prepares, and the third cannot have."""
    Host.objects.update(prepares=True)
    named = NamedEnvironment.objects.create(name=name, kind="text", source=f"{lines}\n", lines=lines)
    states = (
        {"state": "ready", "digest": "5d2a", "size_bytes": 2 * _GB, "memory_bytes": 240 * 2**20},
        {"state": "building"},
        {"state": "failed", "why": "No solution found when resolving dependencies"},
    )
    for host, columns in zip(Host.objects.order_by("name"), states, strict=False):
        HostEnvironment.objects.create(host=host, environment=named.required, since=timezone.now(), **columns)
    return named
