"""A training's time by cause over all of its ranks, from their heartbeats, without any I/O.

Each rank tells how long it has waited in the sums of single steps. All of them leave a sum at the same time, so that
the rank that has waited least came last: what the others have waited longer is straggling, and that rank has caused it.
Durations alone are compared, because the hosts' clocks differ.

Heartbeats come from processes that run a user's script, and are not trusted: what cannot be is left out.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tidepool.protocol import SPENT_PARTS, Entry, RankTime, SpentTime, TimeSpent

__all__ = ["TimeSums"]

_COMMUNICATION, _STRAGGLING = SPENT_PARTS.index("communication"), SPENT_PARTS.index("straggling")
#: Seconds between two entries: few at first, more as the training gets older.
_LEAST_SECONDS, _MOST_SECONDS, _OF_AGE = 2.0, 60.0, 0.05
#: Seconds by which a rank's sums may grow faster than time passes here: heartbeats may be late.
_LATENESS_SECONDS = 10.0
#: Largest number of operations whose waits are incomplete, of waits in a heartbeat, and of ranks.
_MOST_OPERATIONS, _MOST_WAITS, _MOST_RANKS = 1024, 64, 4096


@dataclass
class _Rank:
    spent: SpentTime
    at: float
    #: Seconds of waits in sums that all ranks have told, and of these, for the last rank.
    waited: float = 0.0
    straggled: float = 0.0
    #: Mean seconds, over the others, for which they have waited for this rank, added up; and its number of sums as the
    #: last one.
    caused: float = 0.0
    sums: int = 0
    last_in: int = 0
    #: Part of a former coordinator: its communication and straggling, in seconds.
    before: tuple[float, float] = (0.0, 0.0)


@dataclass
class TimeSums:
    """The coordinator's account. Times are Unix seconds by the coordinator's clock."""

    _ranks: dict[str, _Rank] = field(default_factory=dict)
    #: Operation -> waits by rank.
    _waits: dict[int, dict[str, float]] = field(default_factory=dict)
    _begun_at: float | None = None
    _told_at: float = 0.0
    _told: dict[str, SpentTime] = field(default_factory=dict)
    _recalled: dict[str, RankTime] = field(default_factory=dict)

    def received(
        self, member_id: str, spent: SpentTime, step: int, members: Collection[str], now: float
    ) -> list[Entry]:
        """Take a rank's sums. Return the entry for the journal, when one is due. members: of the active generation."""
        if not self._believes(member_id, spent, now) or len(self._ranks) > _MOST_RANKS:
            return []
        rank = self._ranks.get(member_id)
        if rank is None:
            rank = self._ranks[member_id] = _Rank(spent, now)
            if (former := self._recalled.pop(member_id, None)) is not None:
                straggling = former.seconds[_STRAGGLING]
                rank.before = former.seconds[_COMMUNICATION] + straggling, straggling
                rank.caused, rank.sums, rank.last_in = former.caused_seconds, former.sums, former.last_in
        rank.spent, rank.at = spent, now
        self._compare(member_id, spent.waits[:_MOST_WAITS], members)
        return self._due(step, now)

    def recall(self, entries: Iterable[Entry]) -> None:
        """Take over the sums of an earlier coordinator."""
        for entry in entries:
            if isinstance(entry, TimeSpent):
                self._recalled |= {rank.member_id: rank for rank in entry.ranks}

    def _believes(self, member_id: str, spent: SpentTime, now: float) -> bool:
        if len(spent.seconds) != len(SPENT_PARTS) or spent.steps < 0:
            return False
        if not all(math.isfinite(each) and each >= -1e-3 for each in spent.seconds):
            return False
        if not all(math.isfinite(seconds) and 0 <= seconds <= sum(spent.seconds) + 1 for _, seconds in spent.waits):
            return False
        known = self._ranks.get(member_id)
        if known is None:
            return True
        grown = sum(spent.seconds) - sum(known.spent.seconds)
        passed = max(0.0, now - known.at)  # the clock may have been set back
        return -1e-3 <= grown <= passed + _LATENESS_SECONDS

    def _compare(self, member_id: str, waits: Iterable[tuple[int, float]], members: Collection[str]) -> None:
        for operation, seconds in waits:
            told = self._waits.setdefault(operation, {})
            told[member_id] = seconds
            if len(members) > 1 and told.keys() >= set(members):
                self._settle({name: told[name] for name in members if name in self._ranks})
                del self._waits[operation]
        while len(self._waits) > _MOST_OPERATIONS:
            del self._waits[min(self._waits)]

    def _settle(self, waits: dict[str, float]) -> None:
        """Compare the waits of all ranks in one sum."""
        last = min(waits, key=lambda name: waits[name])
        least = waits[last]
        others = [seconds - least for name, seconds in waits.items() if name != last]
        for name, seconds in waits.items():
            rank = self._ranks[name]
            rank.waited += seconds
            rank.straggled += seconds - least
            rank.sums += 1
        if others:
            self._ranks[last].caused += sum(others) / len(others)
            self._ranks[last].last_in += 1

    def _due(self, step: int, now: float) -> list[Entry]:
        if self._begun_at is None:
            self._begun_at = self._told_at = now
        if now < self._told_at:  # the clock was set back
            self._begun_at, self._told_at = min(self._begun_at, now), now - _LEAST_SECONDS
        pause = min(max(_LEAST_SECONDS, _OF_AGE * (now - self._begun_at)), _MOST_SECONDS)
        if now - self._told_at < pause:
            return []
        changed = {name: rank for name, rank in self._ranks.items() if self._told.get(name) is not rank.spent}
        self._told_at = now
        self._told |= {name: rank.spent for name, rank in changed.items()}
        return [TimeSpent(max(step, 0), [_told(name, rank) for name, rank in changed.items()], at=now)]


def _told(member_id: str, rank: _Rank) -> RankTime:
    """Return a rank's sums, with straggling apart from communication."""
    seconds = [max(each, 0.0) for each in rank.spent.seconds]
    waited, straggled = rank.before
    fraction = rank.straggled / rank.waited if rank.waited else 0.0
    straggled = min(straggled + fraction * max(seconds[_COMMUNICATION] - waited, 0.0), seconds[_COMMUNICATION])
    seconds[_COMMUNICATION] -= straggled
    seconds[_STRAGGLING] = straggled
    rounded = [round(each, 3) for each in seconds]
    compared = round(rank.caused, 3), rank.sums, rank.last_in
    return RankTime(member_id, rank.spent.steps, rounded, *compared, rank.spent.workers, rank.spent.signs)
