"""Ends of the ranks' training loops, without any I/O: when the training is over, and when ranks have parted ways.

A rank reports the end of its loop twice: `trained` when the loop is over and the script goes on, `finished` when the
script has ended. Rank 0 has written the weights before each. The training is over once all ranks have reported the same
generation, and one script has ended: well or by an error, which costs what has been trained no more.
"""

from dataclasses import dataclass, field

from tidepool.protocol import MemberMessage, ShimJoin
from tidepool.torch.coordination.roster import Rank

__all__ = ["LoopEnds"]

#: Time for a shim to report how a rank ended that has gone after its loop.
_REPORT_SECONDS = 10.0


@dataclass
class LoopEnds:
    _reports: dict[str, MemberMessage] = field(default_factory=dict)
    #: Ranks that have gone after the end of their loop, and when: their shim reports whether the script ended them.
    _gone: dict[str, tuple[Rank, float]] = field(default_factory=dict)
    #: A rank's script has ended after its loop.
    _script_ended: bool = False

    def note(self, member_id: str, report: MemberMessage) -> None:
        self._reports[member_id] = report
        self._script_ended = self._script_ended or report.kind == "finished"

    def stepped(self, member_id: str, operation: int) -> None:
        """Forget the end of a loop that another loop has followed."""
        if member_id in self._reports and operation > self._reports[member_id].operation:
            del self._reports[member_id]
            self._script_ended = False

    def ended(self, member_id: str, generation: int) -> bool:
        """Return whether the rank's loop is over in that generation."""
        report = self._reports.get(member_id)
        return report is not None and report.generation == generation

    def of_training(self, members: list[str], generation: int) -> MemberMessage | None:
        """Return a report of the training's end; None: it is not over. `members`: those of the generation that live."""
        everyone = [*members, *(name for name in self._gone if self.ended(name, generation))]
        if not self._script_ended or not everyone or not all(self.ended(name, generation) for name in everyone):
            return None
        return None if self.differing(everyone) else self._reports[everyone[0]]

    def differing(self, members: list[str]) -> list[str]:
        """Return the members whose weights are not those of the first one, on devices of the same kind."""
        reports = {name: report for name in members if (report := self._reports.get(name)) is not None}
        newest = max((report.operation for report in reports.values()), default=0)  # older ones are of an earlier loop
        told = [(name, *one.digest.split()) for name, one in reports.items() if one.operation == newest]
        known = [(name, *digest) for name, *digest in told if digest]
        return [name for name, kind, digest in known if kind == known[0][1] and digest != known[0][2]]

    def parted(self, members: list[str], generation: int) -> tuple[list[str], list[str]]:
        """Return the members whose loop is over, and those whose loop goes on."""
        over = [name for name in members if self.ended(name, generation)]
        return over, [name for name in members if name not in over]

    def operation(self, member_id: str) -> int:
        """Return the number of collectives that a rank had completed at the end of its loop."""
        return self._reports[member_id].operation

    # --- ranks that have gone ---

    def gone(self, rank: Rank, generation: int, now: float) -> bool:
        """Note that a rank's connection is closed. True: its shim's report decides what that means."""
        if not self.ended(rank.member_id, generation):
            return False
        self._gone[rank.member_id] = rank, now
        return True

    def reported(self, join: ShimJoin) -> list[Rank]:
        """Note how ranks have ended, and return those that were killed: the end of their loop no longer counts."""
        by_script = {end.member_id for end in join.ended}
        self._script_ended = self._script_ended or not by_script.isdisjoint(self._gone)
        here = [rank for rank, _ in self._gone.values() if rank.host == join.host]
        return self._drop([rank for rank in here if rank.member_id not in {*join.living, *by_script}])

    def overdue(self, now: float) -> list[Rank]:
        """Return the ranks that no shim has reported about in time, as killed ones."""
        late = [rank for rank, since in self._gone.values() if now - since > _REPORT_SECONDS]
        return [] if self._script_ended else self._drop(late)

    def _drop(self, ranks: list[Rank]) -> list[Rank]:
        for rank in ranks:
            del self._gone[rank.member_id], self._reports[rank.member_id]
        return ranks
