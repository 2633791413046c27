"""The places inside and outside of a wall, as the executor names them and the forkserver builds it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

__all__ = ["Wall", "is_within", "outer", "with_targets", "without"]


@dataclass(frozen=True)
class Wall:
    """A wall around the processes of a job on a host. All paths are absolute."""

    #: Folders and files that are closed, except for the places below them that are named here.
    hidden: tuple[str, ...]
    #: Folders and files besides the system's that the processes may read, and those that they may change.
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    #: Folder for temporary files in place of the machine's.
    temporary: str
    #: TCP ports to which no process may connect, on any machine.
    closed_ports: tuple[int, ...] = ()
    #: User and group, of the same number, that the processes become; None: they stay who their parent is.
    user: int | None = None
    #: Whether /dev is private: with the devices that all programs need, and the GPUs that the executor puts there.
    has_own_devices: bool = False
    #: Size in bytes of its own /dev/shm; None: half of the machine's memory, as the kernel has it.
    shared_memory_bytes: int | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the wall of a request. Raises KeyError or TypeError."""
        names = ("hidden", "readable", "writable")
        places = {name: tuple(str(place) for place in values[name]) for name in names}
        user, shared_memory = values.get("user"), values.get("shared_memory_bytes")
        return cls(
            **places,
            temporary=str(values["temporary"]),
            closed_ports=tuple(map(int, values["closed_ports"])),
            user=None if user is None else int(user),
            has_own_devices=bool(values.get("has_own_devices", False)),
            shared_memory_bytes=None if shared_memory is None else int(shared_memory),
        )

    def resolved(self) -> "Wall":
        """Return the wall without what does not exist. A path with links is there as it is and without them."""
        return replace(
            self,
            hidden=tuple(outer(map(os.path.realpath, filter(os.path.exists, self.hidden)))),
            readable=tuple(with_targets(self.readable)),
            writable=tuple(with_targets(self.writable)),
            temporary=os.path.realpath(self.temporary),
        )


def is_within(place: str, folder: str) -> bool:
    """Return whether `place` is `folder` or below it."""
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def outer(places: Iterable[str]) -> list[str]:
    """Return the places that are not below another one of them, sorted."""
    found: list[str] = []
    for place in sorted(set(places)):
        if not found or not is_within(place, found[-1]):
            found.append(place)
    return found


def without(place: str, hidden: Sequence[str], children: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the largest places that make up `place` and contain nothing hidden."""
    if any(is_within(place, each) for each in hidden):
        return []
    if not any(is_within(each, place) for each in hidden):
        return [place]
    return [part for child in children(place) for part in without(child, hidden, children)]


def with_targets(places: Iterable[str]) -> list[str]:
    """Return the places that exist, and what they are without links: both paths are to lead there."""
    found = [os.path.normpath(place) for place in places if os.path.isabs(place) and os.path.exists(place)]
    return outer([*found, *map(os.path.realpath, found)])
