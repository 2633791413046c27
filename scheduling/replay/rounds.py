"""The clock of published simulators: all decisions fall on whole rounds, and every change costs the same.

It reproduces their published figures to a hundredth of a second, which validates the simulator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from scheduling.replay.physics import Physics
from scheduling.replay.profiles import Placement

__all__ = ["Decide", "Entry", "Hosts", "play_rounds"]

#: The host of each rank, by its number.
Hosts = tuple[int, ...]


@dataclass
class Entry:
    """A training of the trace. `gpus` and `batch` are what its user asked for; moments are seconds of the trace."""

    id: int
    submitted_at: float
    gpus: int
    batch: int
    physics: Physics
    hosts: Hosts = ()
    ended_at: float | None = None

    @property
    def completion_seconds(self) -> float:
        assert self.ended_at is not None, "it has not ended"
        return self.ended_at - self.submitted_at


#: (now, trainings that are neither over nor yet to come, in the order of the trace) -> id -> hosts.
Decide = Callable[[float, Sequence[Entry]], Mapping[int, Hosts]]


def play_rounds(entries: Sequence[Entry], decide: Decide, *, pause: float = 30.0, seconds: float = 60.0) -> None:
    """Simulate until all trainings have ended. A training is considered from the first round after its submission."""
    now = 0.0
    while left := [entry for entry in entries if entry.ended_at is None]:
        for entry in left:
            entry.physics.advance(seconds, whole_seconds=True)
            if entry.physics.over is not None:
                entry.ended_at = now + seconds - entry.physics.over
        now += seconds
        active = [entry for entry in left if entry.ended_at is None and entry.submitted_at <= now]
        decided = decide(now, active)
        for entry in active:
            _move(entry, decided.get(entry.id, ()), pause)


def _move(entry: Entry, hosts: Hosts, pause: float) -> None:
    if hosts != entry.hosts:
        entry.hosts = hosts
        entry.physics.place(_placement(hosts), pause)


def _placement(hosts: Hosts) -> Placement:
    return tuple(len(list(ranks)) for _, ranks in groupby(hosts))
