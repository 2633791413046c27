"""Levels of isolation: what a host can give, and what it lacks, in words. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, get_args

__all__ = ["LEVELS", "Abilities", "Level", "Standing", "is_at_least", "standing_of"]

#: shared: trainings are not kept apart. walled: one user for all, each training behind a wall. separate: behind walls
#: as well, and those of each person are a user of their own, each in a process space of its own. sealed: each has
#: limits and a private /dev besides, and opens no GPU but its own.
Level = Literal["shared", "walled", "separate", "sealed"]
#: Levels from the lowest to the highest.
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

#: Versions of Landlock since which it keeps processes from TCP ports, and from signals and abstract sockets.
PORTS_ABI, SCOPES_ABI = 4, 6


@dataclass(frozen=True)
class Abilities:
    """Mechanisms of a kernel that were tried, and why those that are missing are."""

    #: Version of Landlock; 0: none.
    landlock: int = 0
    why_no_landlock: str = ""
    #: Whether processes can have a private view of the file system.
    mounts: bool = False
    why_no_mounts: str = ""
    #: Whether calls of the kernel can be filtered.
    calls: bool = False
    #: Whether trainings can be users of their own.
    users: bool = False
    why_no_users: str = "it was not tried"
    #: Whether trainings can have a private /dev.
    devices: bool = False
    why_no_devices: str = "it was not tried"

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Standing:
    """The level that a host gives, and a sentence for each thing that it lacks."""

    level: Level
    lacks: tuple[str, ...] = ()


def is_at_least(level: str, least: str) -> bool:
    """Return whether a level keeps trainings apart at least as another does; an unknown one ("") does not."""
    return level in LEVELS[LEVELS.index(least) :]


def standing_of(abilities: Abilities) -> Standing:
    if not abilities.landlock:
        return Standing("shared", (abilities.why_no_landlock or "Its kernel has no Landlock.",))
    lacks = []
    if not abilities.mounts:
        lacks.append(
            "Trainings can connect to unix sockets of this machine, and share its folders for temporary files, shared "
            f"memory and message queues: {abilities.why_no_mounts or 'it gives them no mount namespace'}."
        )
    if abilities.landlock < PORTS_ABI:
        lacks.append("Trainings can connect to every TCP port: Linux 6.7 is the first that keeps them from some.")
    if abilities.landlock < SCOPES_ABI:
        lacks.append(
            "Trainings can signal each other's processes and connect to abstract unix sockets: Linux 6.12 is the first "
            "that keeps them from it."
        )
    if not abilities.calls:
        lacks.append("Trainings share the keys that the kernel keeps for this user: it filters no calls (seccomp).")
    return Standing(_level(abilities), tuple(lacks))


def _level(abilities: Abilities) -> Level:
    if not (abilities.users and abilities.mounts):
        return "walled"
    return "sealed" if abilities.devices else "separate"
