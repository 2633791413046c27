"""Levels of isolation of hosts, in order, and the hosts of a resource group that give at least one of them."""

from collections.abc import Collection
from typing import Final

from tidepool.confine.levels import is_at_least

from workers.models import Host

__all__ = ["ANY", "LEVEL_WORDS", "gives", "part_of", "with_parts"]

#: Level of a group that takes any host.
ANY: Final = ""
#: Level -> what a host of it gives.
LEVEL_WORDS: Final = {
    Host.Isolation.WALLED: "walls",
    Host.Isolation.SEPARATE: "users of their own",
    Host.Isolation.SEALED: "sealed",
}


def gives(host: Host, level: str) -> bool:
    """Return whether the host keeps trainings apart at least as the level says."""
    return is_at_least(host.isolation, level)


def part_of(resource_group: str, level: str) -> str:
    """Return the name of the part of a resource group whose hosts give the level."""
    return resource_group if level == ANY else f"{resource_group} ({LEVEL_WORDS[Host.Isolation(level)]})"


def with_parts(host: Host, resource_groups: Collection[str], levels: Collection[str]) -> tuple[str, ...]:
    """Return the names of resource groups and of their parts that the host is in."""
    given = [level for level in sorted(levels) if gives(host, level)]
    return (*resource_groups, *(part_of(name, level) for name in resource_groups for level in given))
