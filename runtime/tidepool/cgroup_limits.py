"""Processors and memory that this process may use: by its affinity, and by its cgroup and those above it."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Usable", "usable"]

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usable:
    #: Number of processors; a fraction where a quota of time is set.
    cores: float
    memory_bytes: int


def usable(root: Path = _ROOT, own: str | None = None, *, memory: int | None = None) -> Usable:
    """Return what this process may use.

    root: where the kernel shows its cgroups. own: the text of /proc/self/cgroup. memory: bytes of the machine.
    """
    places = [*_places(root, Path("/proc/self/cgroup").read_text() if own is None else own)]
    quotas = (quota for place in places if (quota := _quota(place)) is not None)
    limits = (limit for place in places if (limit := _memory_limit(place)) is not None)
    total = psutil.virtual_memory().total if memory is None else memory
    return Usable(min([float(len(os.sched_getaffinity(0))), *quotas]), min([total, *limits]))


def _places(root: Path, own: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups, and of all above them.

    A container sees its own cgroup at the top, whatever the path is outside: folders that are not there are left out.
    """
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if not controllers:
            yield from _upwards(root, path)
        elif names[0] in ("cpu", "cpuacct", "memory"):
            yield from _upwards(root / ("memory" if "memory" in names else "cpu"), path)


def _upwards(top: Path, path: str) -> Iterator[Path]:
    place = top / path.lstrip("/")
    yield from (one for one in (place, *place.parents) if one.is_relative_to(top) and one.is_dir())


def _quota(place: Path) -> float | None:
    """Return the processors that a cgroup may use; None: no limit."""
    if found := re.match(r"(\d+) (\d+)", _read(place / "cpu.max")):
        return int(found[1]) / int(found[2])
    quota, period = _read(place / "cpu.cfs_quota_us").strip(), _read(place / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _memory_limit(place: Path) -> int | None:
    """Return the bytes that a cgroup may use; None: no limit."""
    text = (_read(place / "memory.max") or _read(place / "memory.limit_in_bytes")).strip()
    return int(text) if text.isdigit() else None


def _read(file: Path) -> str:
    """Return the text of a file of the kernel; "": this version or this cgroup does not have it."""
    try:
        return file.read_text()
    except OSError:
        return ""
