"""Script errors of single ranks: overcome by the others, or repeated at the same step. No I/O.

A rank that ends with an error is treated like any dead rank: the survivors repeat the step. If the same error then ends
another rank at the same step, the training has failed, since another attempt would not help. Once the survivors have
completed that step, the slot may get a new rank.
"""

from dataclasses import dataclass, field

import msgspec

from tidepool.protocol import AttemptFailed, RankEnd, RankFailed, host_of
from tidepool.rank_exits import error_key

__all__ = ["Failure", "Failures"]

#: Step of a rank that ended before it took part.
_BEFORE = -1


@dataclass(frozen=True)
class Failure:
    end: RankEnd
    #: Number of completed steps when it ended; None: it had not taken part in the training yet.
    step: int | None
    #: Generation in which the other ranks went on; 0 before the rank took part.
    generation: int
    #: True if the same failure happened before at the same step, and the remaining ranks made that step again.
    again: bool

    def record(self, kind: type[RankFailed | AttemptFailed], now: float) -> RankFailed | AttemptFailed:
        end = msgspec.structs.asdict(self.end)
        host = host_of(self.end.member_id)
        return kind(**end, host=host, step=self.step, generation=self.generation, at=now)


@dataclass
class Failures:
    #: member_id -> generation and step in which the others continued without it; None: they have not yet.
    _fallen: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    #: Script errors that have not been acted on.
    _ends: dict[str, RankEnd] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    #: (error, step) -> the first generation that continued without a rank that this error had ended.
    _first_generation: dict[tuple[str, int], int] = field(default_factory=dict)
    #: member_id -> step after which its slot gets another rank.
    _waiting: dict[str, int] = field(default_factory=dict)

    def rank_failed(self, member_id: str, *, took_part: bool) -> None:
        """Record that the connection of a rank is closed."""
        self._fallen.setdefault(member_id, None if took_part else (0, _BEFORE))

    def went_on(self, generation: int, step: int) -> None:
        """The survivors trained on in `generation`, with `step` steps completed."""
        for member_id, place in self._fallen.items():
            if place is None:
                self._fallen[member_id] = (generation, step)

    def ended(self, end: RankEnd, *, connected: bool) -> None:
        """Record an end that a shim reports, once or repeatedly. `connected`: the rank may still take part."""
        if end.member_id in self._known or not end.by_script:
            return
        self._known.add(end.member_id)
        self._ends[end.member_id] = end
        if not connected:
            self.rank_failed(end.member_id, took_part=False)

    def take_complete(self) -> list[Failure]:
        """Return and remove the failures that are complete: the end and its consequence are both known."""
        found = []
        for member_id, end in list(self._ends.items()):
            place = self._fallen.get(member_id)
            if place is not None:
                del self._ends[member_id]
                found.append(self._note(end, *place))
        return found

    def recall(self, end: RankEnd, generation: int, step: int | None) -> None:
        """Take over a failure from the journal of an earlier coordinator."""
        self._known.add(end.member_id)
        self._note(end, generation, _BEFORE if step is None else step)

    def overcome(self, step: int) -> list[str]:
        """Return the ranks that failed before `step` was completed, each once."""
        passed = [member_id for member_id, failed_at in self._waiting.items() if step > failed_at]
        for member_id in passed:
            del self._waiting[member_id]
        return passed

    def _note(self, end: RankEnd, generation: int, step: int) -> Failure:
        key = error_key(end.error, end.code, end.signal), step
        again = key in self._first_generation and (step == _BEFORE or generation > self._first_generation[key])
        self._first_generation.setdefault(key, generation)
        if not again:
            self._waiting[end.member_id] = step
        return Failure(end, None if step == _BEFORE else step, generation, again)
