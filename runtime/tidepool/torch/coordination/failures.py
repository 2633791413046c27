"""Script errors of single ranks: overcome by the others, or repeated at the same step. No I/O.

A rank that ends with an error is treated like any dead rank: the survivors repeat the step. If the same error then ends
another rank at the same step, the training has failed, since another attempt would not help. Once the survivors have
completed that step, the slot may get a new rank. An error that ends two newcomers in one slot, each before its second
epoch, would end the next one as well: the training keeps its size.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from tidepool.protocol import AttemptFailed, GenerationPlan, GrowthGivenUp, RankEnd, RankFailed, host_of
from tidepool.rank_exits import error_key
from tidepool.torch.coordination.roster import active_members

__all__ = ["Failure", "Failures"]

_Record = TypeVar("_Record", RankFailed, AttemptFailed, GrowthGivenUp)

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
    #: Whether the rank had joined a training under way, less than two epochs before.
    newcomer: bool
    #: Whether an earlier newcomer in its slot ended with the same error.
    in_circles: bool

    def record(self, kind: type[_Record], now: float) -> _Record:
        end, host = msgspec.structs.asdict(self.end), host_of(self.end.member_id)
        return kind(**end, host=host, step=self.step, generation=self.generation, newcomer=self.newcomer, at=now)

    def growth_given_up(self, active: GenerationPlan, now: float) -> GrowthGivenUp:
        """Return the entry that ends growth beyond the ranks of `active`."""
        return msgspec.structs.replace(self.record(GrowthGivenUp, now), members=active_members(active))


@dataclass
class Failures:
    #: member_id -> generation and step in which the others continued without it; None: they have not yet.
    _fallen: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _newcomers: set[str] = field(default_factory=set)
    #: Slots and errors that have ended a newcomer there.
    _newcomer_ends: set[tuple[str, int, str]] = field(default_factory=set)
    #: Script errors that have not been acted on.
    _ends: dict[str, RankEnd] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    #: (error, step) -> the first generation that continued without a rank that this error had ended.
    _first_generation: dict[tuple[str, int], int] = field(default_factory=dict)
    #: member_id -> step after which its slot gets another rank.
    _waiting: dict[str, int] = field(default_factory=dict)

    def rank_failed(self, member_id: str, *, took_part: bool, newcomer: bool = False) -> None:
        """Record that the connection of a rank is closed."""
        if member_id not in self._fallen:
            self._fallen[member_id] = None if took_part else (0, _BEFORE)
            self._newcomers |= {member_id} if newcomer else set()

    def went_on(self, generation: int, step: int) -> None:
        """The survivors trained on in `generation`, with `step` steps completed."""
        for member_id, place in self._fallen.items():
            if place is None:
                self._fallen[member_id] = (generation, step)

    def ended(self, end: RankEnd, *, connected: bool, under_way: bool) -> None:
        """Record an end that a shim reports, once or repeatedly.

        connected: the rank may still take part. under_way: other ranks train.
        """
        if end.member_id in self._known or not end.by_script:
            return
        self._known.add(end.member_id)
        self._ends[end.member_id] = end
        if not connected:
            self.rank_failed(end.member_id, took_part=False, newcomer=under_way)

    def take_complete(self) -> list[Failure]:
        """Return and remove the failures that are complete: the end and its consequence are both known."""
        found = []
        for member_id, end in list(self._ends.items()):
            place = self._fallen.get(member_id)
            if place is not None:
                del self._ends[member_id]
                found.append(self._note(end, *place))
        return found

    def recall(self, end: RankEnd, generation: int, step: int | None, *, newcomer: bool) -> None:
        """Take over a failure from the journal of an earlier coordinator."""
        self._known.add(end.member_id)
        self._newcomers |= {end.member_id} if newcomer else set()
        self._note(end, generation, _BEFORE if step is None else step)

    def overcome(self, step: int) -> list[str]:
        """Return the ranks that failed before `step` was completed, each once."""
        passed = [member_id for member_id, failed_at in self._waiting.items() if step > failed_at]
        for member_id in passed:
            del self._waiting[member_id]
        return passed

    def _note(self, end: RankEnd, generation: int, step: int) -> Failure:
        error = error_key(end.error, end.code, end.signal)
        again = (error, step) in self._first_generation and (
            step == _BEFORE or generation > self._first_generation[error, step]
        )
        self._first_generation.setdefault((error, step), generation)
        newcomer, place = end.member_id in self._newcomers, (host_of(end.member_id), end.slot, error)
        in_circles = newcomer and place in self._newcomer_ends
        self._newcomer_ends |= {place} if newcomer else set()
        if not again and not in_circles:
            self._waiting[end.member_id] = step
        return Failure(end, None if step == _BEFORE else step, generation, again, newcomer, in_circles)
