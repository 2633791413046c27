"""Use of processors, disk and network by the processes of each rank, whatever program they run.

The kernel adds the CPU time and the bytes of an ended child to its parent when the parent waits for it. `ProcessSums`
counts them once: what was known of a child before its end is taken off what its parent gains by the wait.
"""

import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import psutil
from tidepool.protocol import ProcessUse, RankStatus

__all__ = ["Counters", "Moment", "ProcessReader", "ProcessSums", "Sums", "network_space", "rates"]

#: Seconds between two readings, and the seconds that a rate covers at most. Rows of readings that repeat are written
#: every 10 s, and a rate covers the time between two of them.
_READING_SECONDS, _WINDOW_SECONDS = 1.9, 10.5
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Sums(NamedTuple):
    """Sums over time: seconds of CPU time, bytes read from and written to disks."""

    cpu_seconds: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def less(self, other: "Sums") -> "Sums":
        """Return the difference, with 0 in the place of what would be negative."""
        return Sums(*(max(0.0, mine - theirs) for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Counters:
    """A process, and its sums since its start with those of the ended children that it has waited for."""

    #: Ticks of the kernel's clock from its boot to the start: they tell two processes with one pid apart.
    started: int
    parent: int
    sums: Sums
    #: Whether the bytes are known: only the process's user and root may read them.
    tells_disk: bool = True


@dataclass
class ProcessSums:
    """Sums over all processes of a rank since the first reading. They never fall."""

    total: Sums = field(default_factory=Sums)
    #: Whether the disk's bytes of every process were known in the last reading.
    tells_disk: bool = False
    _known: Mapping[int, Counters] | None = None
    #: Parent -> sums of its children that ended before the last reading, as far as it has not waited for them.
    _ended: Mapping[int, Sums] = field(default_factory=dict)

    @property
    def pids(self) -> Collection[int]:
        """Return the processes of the last reading. Some of them may have left the rank's tree since."""
        return () if self._known is None else self._known.keys()

    def add(self, now: Mapping[int, Counters]) -> None:
        """Add a reading of all processes of the rank. now: pid -> its counters."""
        known = self._known
        if known is not None:
            ended: dict[int, Sums] = defaultdict(Sums)
            for pid, before in known.items():
                if pid not in now or now[pid].started != before.started:
                    ended[before.parent] = ended[before.parent].plus(before.sums)
            left: dict[int, Sums] = {}
            for pid, counters in now.items():
                before_sums = known[pid].sums if self.is_same(pid, counters) else Sums()
                grown = counters.sums.less(before_sums)
                owed = ended.get(pid, Sums()).plus(self._ended.get(pid, Sums()))
                self.total = self.total.plus(grown.less(owed))
                # A wait that falls between the readings of parent and child shows in the next reading only.
                left[pid] = ended[pid].less(grown) if pid in ended else Sums()
            self._ended = left
        self.tells_disk = bool(now) and all(counters.tells_disk for counters in now.values())
        self._known = now

    def former(self, pid: int) -> Counters | None:
        """Return the counters of a process in the last reading; None: it was not there."""
        return None if self._known is None else self._known.get(pid)

    def is_same(self, pid: int, counters: Counters) -> bool:
        """Return whether this very process was there in the last reading."""
        before = self.former(pid)
        return before is not None and before.started == counters.started


class _Network(NamedTuple):
    """The bytes received and sent in a rank's network namespace."""

    space: int
    #: Counts of the interfaces at the last reading, and their growth since the first one.
    told: tuple[int, int]
    so_far: tuple[float, float]


class Moment(NamedTuple):
    """The sums of a rank's processes at one time."""

    #: Monotonic seconds.
    at: float
    sums: Sums
    tells_disk: bool
    #: Bytes received and sent; None: the network is not the training's own.
    network: tuple[float, float] | None


def rates(moments: Sequence[Moment], slots: int) -> ProcessUse | None:
    """Return the rates between the first and the last moment, for each of the slots; None: too little time between."""
    first, last = (moments[0], moments[-1]) if moments else (None, None)
    if first is None or last is None or last.at <= first.at:
        return None
    seconds = (last.at - first.at) * slots
    grown = last.sums.less(first.sums)
    tells_disk = all(moment.tells_disk for moment in moments)
    network = None
    if first.network is not None and last.network is not None:
        network = [
            max(0.0, after - before) / seconds for after, before in zip(last.network, first.network, strict=True)
        ]
    return ProcessUse(
        round(grown.cpu_seconds / seconds, 3),
        round(grown.read_bytes / seconds) if tells_disk else None,
        round(grown.written_bytes / seconds) if tells_disk else None,
        None if network is None else round(network[0]),
        None if network is None else round(network[1]),
    )


def network_space(root: int | None, others: Iterable[int | None], host: int | None) -> int | None:
    """Return the network namespace that a rank's processes have apart from the host; None: they have none.

    root: namespace of the rank's first process. others: namespaces of the rest. In each place, None: not readable.
    """
    found = {root} if root != host else {*others}
    [space] = found if len(found) == 1 else [None]
    return None if space == host or host is None else space


class ProcessReader:
    """The processes of this host's ranks from one reading to the next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._proc = proc
        self._sums: dict[str, ProcessSums] = {}
        self._moments: dict[str, deque[Moment]] = {}
        self._networks: dict[str, _Network] = {}
        self._read_at = float("-inf")
        self._found: dict[str, ProcessUse | None] = {}

    def read(
        self, ranks: Iterable[RankStatus], trees: Mapping[int, list[psutil.Process]]
    ) -> Mapping[str, ProcessUse | None]:
        """Return the use by each rank, by its member id and for each slot that it holds; None: not known yet.

        Readings of the same ranks closer than two seconds to each other repeat the last one.
        """
        ranks = list(ranks)
        slots = Counter(rank.member_id for rank in ranks)
        now = self._clock()
        if now - self._read_at >= _READING_SECONDS or slots.keys() != self._sums.keys():
            self._read_at = now
            self._read({rank.member_id: rank for rank in ranks}, trees, now)
            self._found = {member: rates(self._moments[member], number) for member, number in slots.items()}
        return self._found

    def _read(self, ranks: Mapping[str, RankStatus], trees: Mapping[int, list[psutil.Process]], now: float) -> None:
        self._sums = {member: self._sums.get(member, ProcessSums()) for member in ranks}
        for member, rank in ranks.items():
            self._sums[member].add(self._of_rank(self._sums[member], [one.pid for one in trees.get(rank.pid, [])]))
        self._networks = self._read_networks(ranks.values(), trees)
        moments = {member: self._moments.get(member, deque()) for member in ranks}
        for member, of_member in moments.items():
            sums, network = self._sums[member], self._networks.get(member)
            of_member.append(Moment(now, sums.total, sums.tells_disk, None if network is None else network.so_far))
            while now - of_member[0].at > _WINDOW_SECONDS:
                of_member.popleft()
        self._moments = moments

    def _of_rank(self, before: ProcessSums, tree: Sequence[int]) -> dict[int, Counters]:
        """Return the processes of a rank: its tree, and those that were in it before and are still there."""
        found = {pid: self._counters(pid, before.former(pid)) for pid in {*tree, *before.pids}}
        return {
            pid: counters
            for pid, counters in found.items()
            if counters is not None and (pid in tree or before.is_same(pid, counters))
        }

    def _counters(self, pid: int, former: Counters | None) -> Counters | None:
        """Return what the kernel has counted for a process; None: it is gone. former: the reading before."""
        try:
            text = (self._proc / str(pid) / "stat").read_bytes()
        except OSError:  # gone meanwhile
            return None
        # The name stands in parentheses and may hold anything, also parentheses: count from the last one.
        fields = text[text.rindex(b")") + 2 :].split()
        started, seconds = int(fields[19]), sum(int(each) for each in fields[11:15]) / _TICKS_PER_SECOND
        disk = self._disk_bytes(pid)
        if disk is None and fields[0] == b"Z" and former is not None and former.started == started:
            # An ended process that nobody has waited for yet has no more than before.
            return replace(former, sums=former.sums._replace(cpu_seconds=seconds))
        return Counters(started, int(fields[1]), Sums(seconds, *(disk or ())), tells_disk=disk is not None)

    def _disk_bytes(self, pid: int) -> tuple[int, int] | None:
        """Return the bytes that a process has read from and written to disks; None: not for this process to know."""
        try:
            lines = (self._proc / str(pid) / "io").read_bytes().splitlines()
        except OSError:  # another user's, or gone meanwhile; some kernels have no such file
            return None
        told = {name: int(value) for name, _, value in (line.partition(b": ") for line in lines)}
        return (told[b"read_bytes"], told[b"write_bytes"]) if {b"read_bytes", b"write_bytes"} <= told.keys() else None

    def _read_networks(
        self, ranks: Collection[RankStatus], trees: Mapping[int, list[psutil.Process]]
    ) -> dict[str, _Network]:
        host = self._space("self")
        spaces: dict[str, tuple[int, int]] = {}
        jobs: dict[int, set[int]] = defaultdict(set)
        for rank in ranks:
            others = {process.pid: self._space(process.pid) for process in trees.get(rank.pid, [])}
            root = others.pop(rank.pid, None)
            if (space := network_space(root, others.values(), host)) is not None:
                inside = next((pid for pid, each in others.items() if each == space), rank.pid)
                spaces[rank.member_id] = space, inside
                jobs[space].add(rank.job)
        shared = Counter(space for space, _ in spaces.values())
        found: dict[str, _Network] = {}
        for member, (space, inside) in spaces.items():
            told = self._interface_bytes(inside)
            if (
                told is not None and len(jobs[space]) == 1
            ):  # of two trainings in one, nobody can tell whose bytes they are
                found[member] = _grown(self._networks.get(member), space, told, shared[space])
        return found

    def _space(self, pid: int | str) -> int | None:
        """Return the number of a process's network namespace; None: gone, or not for this process to know."""
        try:
            return (self._proc / str(pid) / "ns" / "net").stat().st_ino
        except OSError:
            return None

    def _interface_bytes(self, pid: int) -> tuple[int, int] | None:
        """Return the bytes received and sent by the interfaces of a process, but the loopback; None: not known."""
        try:
            lines = (self._proc / str(pid) / "net" / "dev").read_text().splitlines()[2:]
        except OSError:  # gone meanwhile
            return None
        rows = [(name.strip(), values.split()) for name, _, values in (line.partition(":") for line in lines)]
        apart = [values for name, values in rows if name != "lo"]
        return sum(int(values[0]) for values in apart), sum(int(values[8]) for values in apart)


def _grown(before: _Network | None, space: int, told: tuple[int, int], ranks: int) -> _Network:
    """Add what a namespace's interfaces have counted since the reading before, divided among its ranks."""
    if before is None or before.space != space:
        return _Network(space, told, (0.0, 0.0))
    received, sent = (max(0, after - former) / ranks for after, former in zip(told, before.told, strict=True))
    return _Network(space, told, (before.so_far[0] + received, before.so_far[1] + sent))
