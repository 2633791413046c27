"""Reasons over time: the scheduler's explanation for each training of a replay, noted whenever it changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scheduling.schedule import CycleResult

__all__ = ["Note", "Notes"]


class Note(NamedTuple):
    """A training's target from `at` on, with the params of its `Explanation`; None: it has ended or is held."""

    at: float
    job: int
    target: int
    params: Mapping[str, Any] | None


@dataclass
class Notes:
    """Reasons until `until`. Where there are more than `most`, none is kept."""

    until: float
    most: int
    noted: list[Note] = field(default_factory=list)
    is_full: bool = False
    #: Newest target and explanation of each present training.
    _said: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def tell(self, at: float, result: CycleResult | None) -> None:
        if self.is_full or at > self.until:
            return
        reasons, placed = (result.reasons(), result.placed) if result is not None else ({}, {})
        for job in sorted(self._said.keys() - reasons.keys()):
            del self._said[job]
            self.noted.append(Note(at, job, 0, None))
        for job, reason in sorted(reasons.items()):
            said = placed[job].target, reason.params["message"]
            if self._said.get(job) != said:
                self._said[job] = said
                self.noted.append(Note(at, job, said[0], reason.params))
        if len(self.noted) > self.most:
            self.is_full, self.noted = True, []
