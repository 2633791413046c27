"""Numbers that a loop of a script's own adds up over its batches and all ranks: `add_up` and `totals`.

What a rank has added in the body of a batch rides on the sum of the next one, among the metrics. So a rank that dies
takes nothing with it but what it added after its last sum, which the others' logs say, and a rank that joins has the
totals so far as a part of the position. What has not ridden on a sum yet is gathered before ranks leave, and when the
script asks.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping

from tidepool.refusal import Refusal
from tidepool.torch.rank.step import RECORDED, TOTAL, Step
from tidepool.torch.rank.training_loop import TrainingLoop

__all__ = ["SHORT_TOTALS", "Totals"]

#: Sentence in the logs of the ranks that train on.
SHORT_TOTALS = "a process died, and the totals of this epoch lack what it added in its last batch."
#: Batches after which a script that adds anything up has done so.
_FIRST_BATCHES = 2


class Totals:
    """One rank's part. Only the training thread calls it."""

    def __init__(self, training_loop: TrainingLoop) -> None:
        self._training_loop = training_loop
        #: Added by this rank, and not summed with the others yet.
        self._pending: dict[str, float] = {}
        #: Added in batches of which nothing comes.
        self._in_vain: dict[str, float] = {}

    def add(self, values: Mapping[str, float], *, in_vain: bool) -> None:
        target = self._in_vain if in_vain else self._pending
        for name, value in values.items():
            if f"{TOTAL}{name}" in RECORDED or not name.isidentifier():
                raise Refusal(f"{name!r} is no name of a total: take letters, digits and _")
            target[name] = target.get(name, 0.0) + float(value)

    def saved(self) -> dict[str, float]:
        return dict(self._pending)

    def restore(self, pending: Mapping[str, float]) -> None:
        self._pending = dict(pending)

    def give(self, step: Step) -> None:
        """Let what is pending ride on the sum of the step."""
        step.add_totals(self._pending)

    def take(self, step: Step, control: list[float]) -> None:
        """Add what has ridden on the sum of the step."""
        self._pending = {}
        self._add(step.totals(control))

    def gather_before_change(self) -> None:
        """Gather before ranks leave, if the script adds anything up; all ranks know that after the first batches."""
        if self._training_loop.position.batches <= _FIRST_BATCHES or self._is_used:
            self.gather("totals before a change of processes")

    def note_loss(self) -> None:
        """Say that a rank has died, with what it had added since its last sum."""
        if self._is_used:
            print(f"tidepool: {SHORT_TOTALS}", file=sys.stderr, flush=True)  # noqa: T201

    @property
    def _is_used(self) -> bool:
        return any(name.startswith(TOTAL) for name in self._training_loop.position.metric_names)

    def gather(self, kind: str) -> None:
        """Add what is pending on all ranks, which call it at the same place. kind: as of `meet_in`."""
        for piece in self._training_loop.gathered(lambda: json.dumps(self._pending).encode(), kind):
            self._add(json.loads(piece))
        self._pending = {}

    def _add(self, values: Mapping[str, float]) -> None:
        position = self._training_loop.position
        sums = defaultdict(float, position.totals)
        for name, value in values.items():
            sums[name] += value
        position.totals = dict(sums)

    def take_all(self) -> dict[str, float]:
        """Return the totals over all ranks since the call before. All ranks call it at the same place."""
        self.gather("tidepool.torch.totals()")
        position = self._training_loop.position
        sums, position.totals = position.totals, {}
        return sums

    def take_in_vain(self) -> dict[str, float]:
        """Return what was added in batches of which nothing comes."""
        sums, self._in_vain = self._in_vain, {}
        return sums
