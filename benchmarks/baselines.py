"""Two published policies, written anew from their papers and from how the artifact of the Pollux paper reads them.

Tiresias (NSDI'19) gives each training what its user asked for: first those that have had little GPU time. Optimus
(EuroSys'18), with true step times and the true number of steps left, gives GPUs one by one to who saves most time.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from benchmarks.trace_files import ONE_GPU
from scheduling.replay.physics import fixed_batch
from scheduling.replay.profiles import Application, Batch
from scheduling.replay.rounds import Entry, Hosts

__all__ = ["Optimus", "Tiresias"]

#: GPU-seconds after which a training goes to the second queue.
QUEUE_BOUND = 16 * 3600


class Tiresias:
    """Two queues, each in the order in which trainings joined it: the second is served after the first."""

    def __init__(self, hosts: int, gpus_per_host: int) -> None:
        self._gpus = [gpus_per_host] * hosts
        self._queues: tuple[list[Entry], list[Entry]] = ([], [])
        self._running_since: dict[int, float] = {}
        self._seconds: dict[int, float] = {}

    def __call__(self, now: float, active: Sequence[Entry]) -> Mapping[int, Hosts]:
        self._join(now, active)
        wanted = self._served(now)
        return packed(self._gpus, wanted, active)

    def _join(self, now: float, active: Sequence[Entry]) -> None:
        first, second = self._queues
        ids = {entry.id for entry in active}
        first[:], second[:] = ([entry for entry in queue if entry.id in ids] for queue in self._queues)
        first += [entry for entry in active if entry.id not in self._seconds]
        for entry in active:
            since = self._running_since.get(entry.id, now)
            self._seconds[entry.id] = self._seconds.get(entry.id, 0) + int(now - since)
        demoted = [entry for entry in first if self._seconds[entry.id] * entry.gpus >= QUEUE_BOUND]
        first[:] = [entry for entry in first if entry not in demoted]
        second += demoted

    def _served(self, now: float) -> dict[int, int]:
        free, wanted = sum(self._gpus), {}
        self._running_since = {}
        for entry in [*self._queues[0], *self._queues[1]]:
            if entry.gpus <= free:
                wanted[entry.id] = entry.gpus
                self._running_since[entry.id] = now
                free -= entry.gpus
        return wanted


class Optimus:
    """One GPU for each, then one by one to who saves most seconds by the next.

    As published, what is left is counted from the end of the present epoch and is one step in the last, a step on one
    GPU is foretold with two micro-batches, and who gets fewest is placed first.
    """

    def __init__(self, hosts: int, gpus_per_host: int) -> None:
        self._gpus = [gpus_per_host] * hosts
        self._largest = gpus_per_host

    def __call__(self, now: float, active: Sequence[Entry]) -> Mapping[int, Hosts]:
        free = sum(self._gpus)
        served = {entry.id: entry for entry in active[:free]}
        wanted = dict.fromkeys(served, 1)
        free -= len(wanted)
        gains = {entry.id: self._gain(entry, 1) for entry in served.values()}
        while free and gains:
            best = max(gains, key=gains.__getitem__)
            if gains[best] <= 0:
                break
            wanted[best] += 1
            free -= 1
            gains[best] = self._gain(served[best], wanted[best])
        return packed(self._gpus, dict(sorted(wanted.items(), key=lambda item: item[1])), active)

    def _gain(self, entry: Entry, gpus: int) -> float:
        """Seconds that one GPU more than so many saves; 0 where that is more than the training may have."""
        application = entry.physics.application
        most = 1 if application.name == ONE_GPU else entry.batch // application.micro_bounds[0]
        if gpus + 1 > most:
            return 0.0
        return (self._seconds(entry, gpus) - self._seconds(entry, gpus + 1)) * _steps_left(entry)

    def _seconds(self, entry: Entry, gpus: int) -> float:
        full, rest = divmod(gpus, self._largest)
        placement = (self._largest,) * full + ((rest,) if rest else ())
        batch = fixed_batch(entry.physics.application, entry.batch, gpus)
        if gpus == 1 and batch.pieces == 1:
            batch = Batch(ceil(entry.batch / 2), 2)
        return entry.physics.application.step_times(placement, batch.micro).of(batch)


def _steps_left(entry: Entry) -> float:
    application, epochs = entry.physics.application, len(entry.physics.application.epoch_ends)
    assert isinstance(application, Application)
    if entry.physics.epoch + 1 >= epochs:
        return 1.0
    return application.iterations(entry.batch, epochs) - application.iterations(entry.batch, entry.physics.epoch + 1)


def packed(gpus: Sequence[int], wanted: Mapping[int, int], active: Sequence[Entry]) -> dict[int, Hosts]:
    """Keep jobs that have their number. The others, in the order of `wanted`, take all that the freest host has,
    of equals the first, until they have theirs."""
    placed = {entry.id: entry.hosts for entry in active if entry.hosts and len(entry.hosts) == wanted.get(entry.id)}
    free = list(gpus)
    for host in (host for hosts in placed.values() for host in hosts):
        free[host] -= 1
    for job, count in wanted.items():
        if job in placed:
            continue
        hosts: list[int] = []
        while len(hosts) < count:
            host = free.index(max(free))
            taken = min(free[host], count - len(hosts))
            free[host] -= taken
            hosts += [host] * taken
        placed[job] = tuple(hosts)
    return placed
