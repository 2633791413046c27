"""Limits on the memory, cores, processes and devices of a training on this host, by control groups of either version.

Where the same groups can weigh cores, a training whose host is busy gets them in proportion to the cores of its slots.
A ceiling holds it to these cores while others are idle, too.

Each job has a group below the executor's own one. Its guardian is put into it before it has started a rank.
"""

import errno
import logging
import os
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tidepool.confine.device_program import attach
from tidepool.confine.devices import Device, shared
from tidepool.rank_exits import JOB_GROUP

__all__ = [
    "LEAF",
    "LEAST_CORES",
    "LEAST_MEMORY",
    "Amounts",
    "Asked",
    "ControlGroups",
    "JobLimits",
    "Limits",
    "NoLimitsError",
    "control_groups",
    "limits_of",
]

_MOUNT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
#: Group of version 2 that the executor's own processes are in: one that has groups below it may contain none.
LEAF: Final = "executor"
#: Least memory in bytes that a slot can be limited to.
LEAST_MEMORY: Final = 64 * 1024**2
#: Least number of cores that a slot can be limited to: below, a rank does not answer in time.
LEAST_CORES: Final = 0.1
_TRY: Final = "try"
_ALL_DEVICES: Final = "a *:* rwm"
#: Files of a group by its version, in the order in which limits are lowered: memory, memory and swap, processes.
_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max"),
    2: ("memory.max", "memory.swap.max", "pids.max"),
}
_DEVICES: Final = "devices"
_USED: Final = {1: "memory.usage_in_bytes", 2: "memory.current"}
_CORES: Final = "cpu"
#: File with a group's weight by its version, its default, which stands for one core here, and its largest value.
_WEIGHTS: Final = {1: ("cpu.shares", 1024, 2**18), 2: ("cpu.weight", 100, 10_000)}
#: File with a group's ceiling by its version: time of the processors that it may use in each period, in microseconds.
_CEILINGS: Final = {1: "cpu.cfs_quota_us", 2: "cpu.max"}
_PERIOD_US: Final = 100_000


logger = logging.getLogger(__name__)


class NoLimitsError(Exception):
    """This host cannot limit its trainings. The message is a part of a sentence that says why."""


@dataclass(frozen=True)
class Amounts:
    """Amounts that a training may use for each slot; None: as much as it can get."""

    #: share: the part of the host's memory that a slot stands for.
    memory_bytes: int | Literal["share"] | None = None
    processes: int | None = None
    #: share: the cores of the host that a slot stands for.
    cores: float | Literal["share"] | None = None


@dataclass(frozen=True)
class Limits:
    """Memory in bytes, and numbers of processes and cores, that a job may use; None: no limit."""

    memory_bytes: int | None
    processes: int | None
    cores: float | None = None


@dataclass(frozen=True)
class Asked:
    """A job's wishes and shares for each slot."""

    #: Memory that it has asked for, instead of the operator's limit; None: it has not.
    memory_gib: int | None = None
    #: Cores that it has asked for, or the share of a slot.
    cores: float = 1.0
    #: Whether it has asked for these cores, which count instead of the operator's limit.
    asks_for_cores: bool = False
    #: Bytes of the host's memory that a slot stands for.
    share_bytes: int = 0


def limits_of(per_slot: Amounts, asked: Asked, slots: int) -> Limits:
    """Return the limits of a job with so many slots."""
    memory = max(asked.share_bytes, LEAST_MEMORY) if per_slot.memory_bytes == "share" else per_slot.memory_bytes
    if memory is not None and asked.memory_gib is not None:
        memory = asked.memory_gib * 1024**3
    processes = None if per_slot.processes is None else per_slot.processes * slots
    return Limits(None if memory is None else memory * slots, processes, _cores(per_slot, asked, slots))


def _cores(per_slot: Amounts, asked: Asked, slots: int) -> float | None:
    if per_slot.cores is None:
        return None
    each = asked.cores if asked.asks_for_cores or per_slot.cores == "share" else per_slot.cores
    return max(LEAST_CORES, each) * slots


class JobLimits:
    """Limits of the jobs of an executor; none where its operator has set none."""

    def __init__(
        self, per_slot: Amounts, mark: str, *, filters_devices: bool = False, by_systemd: bool = False
    ) -> None:
        """by_systemd: systemd has started this process, and starts it again in the same group."""
        self._groups: ControlGroups | None = None
        #: Why jobs cannot be limited as the operator has asked; "": they can, or need not be.
        self.why_none = ""
        if per_slot != Amounts() or filters_devices:
            try:
                self._groups = control_groups(per_slot, mark, filters_devices=filters_devices, by_systemd=by_systemd)
            except NoLimitsError as error:
                self.why_none = str(error)

    def hold(
        self,
        key: tuple[int, int],
        pid: int,
        slots: int,
        asked: Asked = Asked(),
        devices: frozenset[Device] | None = None,
    ) -> bool:
        """Limit a guardian that has started nothing yet, and what it will start; one that cannot be limited is killed.

        devices: those that it may open; None: it is not kept from any.
        Returns whether it goes on.
        """
        if self._groups is None:
            return True
        try:
            self._groups.hold(_name(key), pid, slots, asked, devices)
        except OSError as error:
            logger.warning("job=%s attempt=%s: its processes cannot be limited: %s", *key, error)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return False
        return True

    def keep(self, key: tuple[int, int], slots: int, asked: Asked = Asked()) -> None:
        """Adapt the limits to the number of slots."""
        if self._groups is not None:
            try:
                self._groups.set(_name(key), slots, asked)
            except OSError as error:
                logger.warning("job=%s attempt=%s: its limits stay as they were: %s", *key, error)

    def allow(self, key: tuple[int, int], devices: frozenset[Device]) -> None:
        """Let the job open these devices and no others from now on. Raises OSError."""
        if self._groups is not None:
            self._groups.allow(_name(key), devices)

    def holds(self, key: tuple[int, int], pid: int) -> bool:
        """Return whether a process is the job's, by the kernel's record. Raises OSError."""
        return self._groups is not None and self._groups.holds(_name(key), pid)

    def forget(self, key: tuple[int, int]) -> None:
        if self._groups is not None:
            self._groups.forget(_name(key))


def _name(key: tuple[int, int]) -> str:
    return f"{key[0]}.{key[1]}"


class ControlGroups:
    """Groups of the jobs of this host."""

    def __init__(self, version: int, parents: Iterable[Path], mark: str, per_slot: Amounts) -> None:
        """parents: the groups below which those of jobs are made, one for each hierarchy."""
        self._version = version
        self._parents = tuple(dict.fromkeys(parents))
        self._mark = mark
        self._per_slot = per_slot
        #: Number of slots that the limits of each job are for, as far as they were set.
        self._slots: dict[str, int] = {}
        #: Devices that each job may open, as far as this executor has set them.
        self._devices: dict[str, frozenset[Device]] = {}

    def hold(
        self,
        job: str,
        pid: int,
        slots: int,
        asked: Asked = Asked(),
        devices: frozenset[Device] | None = None,
    ) -> None:
        """Put a process, and all that it will start, into the job's group. Raises OSError."""
        for place in self._places(job):
            place.mkdir(exist_ok=True)
        self._slots.pop(job, None)
        self._devices.pop(job, None)
        self.set(job, slots, asked)
        if devices is not None:
            self.allow(job, devices)
        for place in self._places(job):
            (place / "cgroup.procs").write_text(str(pid))

    def set(self, job: str, slots: int, asked: Asked = Asked()) -> None:
        """Limit the job to what it may use on so many slots; a limit below what it uses waits until that has shrunk."""
        if self._slots.get(job) == slots or not slots:
            return
        places = [place for place in self._places(job) if place.is_dir()]
        if not places:
            return
        limits = limits_of(self._per_slot, asked, slots)
        if limits.memory_bytes is not None and _used(places, _USED[self._version]) > limits.memory_bytes:
            return
        for place in places:
            _limit(place, limits, self._version)
            _weigh(place, asked.cores * slots, self._version)
        self._slots[job] = slots

    def allow(self, job: str, devices: frozenset[Device]) -> None:
        """Let the job open these devices only. Raises OSError."""
        if self._devices.get(job) == devices:
            return
        place = self._place_of_devices(job)
        if self._version == 1:
            _list_devices(place, devices)
        else:
            attach(str(place), devices)
        self._devices[job] = devices

    def holds(self, job: str, pid: int) -> bool:
        """Return whether a process is in the job's group, which none leaves by itself. Raises OSError."""
        return str(pid) in (self._place_of_devices(job) / "cgroup.procs").read_text().split()

    def forget(self, job: str) -> None:
        """Remove the group of a job that has no process left."""
        self._slots.pop(job, None)
        self._devices.pop(job, None)
        for place in self._places(job):
            with suppress(FileNotFoundError, OSError):  # a process is left: the next executor of this host finds it
                place.rmdir()

    def forget_ended(self) -> None:
        """Remove the groups of jobs of this host that have no process left, as a killed executor leaves them behind."""
        name = re.compile(re.escape(f"{JOB_GROUP}{self._mark}.") + r"(\d+\.\d+)")
        for parent in self._parents:
            for found in filter(None, (name.fullmatch(place.name) for place in parent.iterdir())):
                self.forget(found[1])

    def _places(self, job: str) -> list[Path]:
        return [parent / f"{JOB_GROUP}{self._mark}.{job}" for parent in self._parents]

    def _place_of_devices(self, job: str) -> Path:
        return self._places(job)[-1]


def _list_devices(place: Path, devices: Iterable[Device]) -> None:
    """Set a list of version 1. What stays allowed is allowed all the time."""
    wanted = {_line(device) for device in devices}
    there = {*(place / "devices.list").read_text().splitlines()}
    if _ALL_DEVICES in there:
        (place / "devices.deny").write_text("a")
        there = set()
    for line in sorted(there - wanted):
        (place / "devices.deny").write_text(line)
    for line in sorted(wanted - there):
        (place / "devices.allow").write_text(line)


def _line(device: Device) -> str:
    return f"{device.kind} {device.major}:{'*' if device.minor is None else device.minor} rw"


def _limit(place: Path, limits: Limits, version: int) -> None:
    memory, with_swap, processes = _FILES[version]
    if limits.memory_bytes is not None and (place / memory).exists():
        # Version 1 counts memory and swap together, and refuses less of it than of memory; version 2 counts swap alone.
        values = {memory: limits.memory_bytes, with_swap: limits.memory_bytes if version == 1 else 0}
        known = {name: value for name, value in values.items() if (place / name).exists()}
        try:
            _write(place, known)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _write(place, dict(reversed(known.items())))
    if limits.processes is not None and (place / processes).exists():
        (place / processes).write_text(str(limits.processes))
    if limits.cores is not None and (place / _CEILINGS[version]).exists():
        quota = round(limits.cores * _PERIOD_US)
        (place / _CEILINGS[version]).write_text(f"{quota} {_PERIOD_US}" if version == 2 else str(quota))


def _weigh(place: Path, cores: float, version: int) -> None:
    """Give the group its weight among those that want the processors, where it has one."""
    name, per_core, most = _WEIGHTS[version]
    if (place / name).exists():
        (place / name).write_text(str(max(2, min(round(per_core * cores), most))))


def _write(place: Path, values: Mapping[str, int]) -> None:
    for name, value in values.items():
        (place / name).write_text(str(value))


def _used(places: Iterable[Path], name: str) -> int:
    return max((int((place / name).read_text()) for place in places if (place / name).exists()), default=0)


def control_groups(
    per_slot: Amounts,
    mark: str,
    *,
    filters_devices: bool = False,
    by_systemd: bool = False,
    mount: Path = _MOUNT,
    own: str | None = None,
) -> ControlGroups:
    """Return the groups of this host, after having tried to limit one. own: text of /proc/self/cgroup.

    Raises NoLimitsError.
    """
    lines = (_OWN.read_text() if own is None else own).splitlines()
    wanted = {"memory": per_slot.memory_bytes, "pids": per_slot.processes, _CORES: per_slot.cores}
    controllers = [name for name, amount in wanted.items() if amount is not None]
    try:
        version, parents = _parents(lines, controllers, mount, filters_devices=filters_devices, by_systemd=by_systemd)
        groups = ControlGroups(version, parents, mark, per_slot)
        for place in groups._places(_TRY):
            place.mkdir(exist_ok=True)
        groups.set(_TRY, 1)
        if filters_devices:
            groups.allow(_TRY, shared())
        groups.forget(_TRY)
        groups.forget_ended()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise NoLimitsError(f"its control groups cannot be used: {error.strerror}{where}") from None
    return groups


def _parents(
    lines: Iterable[str], controllers: Sequence[str], mount: Path, *, filters_devices: bool, by_systemd: bool
) -> tuple[int, list[Path]]:
    """Return the version of control groups that has these controllers, and the executor's own group of each.

    The last one is that in which devices are filtered.
    """
    own = {name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")}
    if filters_devices and (_DEVICES in own or any(name in own for name in controllers)):
        controllers = [*controllers, _DEVICES]
    first = [_first_of(mount / name / own[name].lstrip("/"), mount / name) for name in controllers if name in own]
    if first and _CORES in own:
        first.insert(0, _first_of(mount / _CORES / own[_CORES].lstrip("/"), mount / _CORES))
    if first:
        missing = [name for name in controllers if name not in own]
        if missing:
            raise NoLimitsError(f"its kernel has no control groups for {', '.join(missing)}")
        return 1, first
    if "" not in own:
        raise NoLimitsError("its kernel has no control groups")
    group = _first_of(mount / own[""].lstrip("/"), mount)
    if by_systemd and group.suffix == ".service":
        raise NoLimitsError(
            f"systemd has started its executor in {group} itself, and could not start it there again beside trainings: "
            f"its unit needs DelegateSubgroup={LEAF}, which systemd 254 is the first to know"
        )
    return 2, [_delegated(group.parent if group.name == LEAF else group, controllers)]


def _first_of(*places: Path) -> Path:
    """Return the first place that is there: a container sees its own group at the top."""
    return next((place for place in places if (place / "cgroup.procs").exists()), places[-1])


def _delegated(group: Path, controllers: Iterable[str]) -> Path:
    """Return the group of version 2, once groups below it have the controllers."""
    offered = (group / "cgroup.controllers").read_text().split()
    wanted = [*controllers, *({_CORES} & {*offered})]
    if missing := [name for name in controllers if name not in offered]:
        raise NoLimitsError(f"its group {group} has no controller for {', '.join(missing)}: let systemd delegate them")
    enabled = (group / "cgroup.subtree_control").read_text().split()
    if {*wanted} <= {*enabled}:
        return group
    leaf = group / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid)
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    return group
