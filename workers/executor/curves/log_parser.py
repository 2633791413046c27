"""Points from the lines of a script's output: each gets a step and an epoch, and the progress of the training.

The step comes from the line. If a counter restarts with each epoch, the counts add up, so that steps never decrease.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from workers.executor.curves.parsed_lines import HELD_OUT, MAX_COUNT, ParsedLine, parsed_line
from workers.executor.curves.parsed_points import Point
from workers.executor.curves.pattern import LinePattern

__all__ = ["LineReader"]


@dataclass
class LineReader:
    """Parser of the lines of one stream. Its fields hold the state between lines."""

    #: Number of epochs from the script's arguments or output; 0: unknown.
    total_epochs: int = 0
    epoch: float = 0.0
    #: Number of the first epoch, 0 or 1; None: no line has named an epoch yet.
    first_epoch: int | None = None
    #: Step of the newest point.
    step: int = 0
    #: The newest counter as printed, its total, and the sum of the counters before its last restart.
    counter: int = 0
    total_steps: int = 0
    before: int = 0
    #: Whether the counter was printed in the present epoch.
    is_counter_of_epoch: bool = True
    #: Whether lines count steps. If so, a line that names only an epoch belongs to the newest step.
    counts_steps: bool = False
    #: Whether a counter without an epoch has restarted, so that counter / total is not the training's progress.
    restarts: bool = False
    #: Whether a bar counts epochs, so that a counter without an epoch is that of one epoch.
    has_epoch_bar: bool = False
    #: Whether lines with metrics name their steps. If so, bars count none.
    counts_in_text: bool = False
    #: The bar that counts steps: its name without numbers, and its total. Shorter bars that begin while it is drawn, or
    #: after it, such as those of evaluations, count none.
    main_bar: str = ""
    main_total: int = 0
    #: The last shorter bar after the main one ended. It becomes the main one if a training metric is printed under it.
    later_bar: str = ""
    later_counter: int = 0
    later_total: int = 0
    #: Whether the log has begun its epochs anew: a second phase, whose number of epochs is unknown.
    repeats_epochs: bool = False
    #: Whether epochs have fractions, as Hugging Face prints them; without counters, points are then numbered in order.
    has_parts: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "LineReader":
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def point(self, line: str, pattern: LinePattern | None = None) -> Point | None:
        """Return the point of a line; None if the line has no metric, bar or position."""
        parsed = parsed_line(line, pattern)
        if parsed is None:
            return None
        self._follow(parsed)
        if not parsed.metrics and parsed.bar is None and parsed.progress is None and not self._has_position(parsed):
            return None
        if parsed.metrics and not self.counts_steps and (self.has_parts or self.first_epoch is None):
            self.step += 1
        counted = self.counts_steps or self.first_epoch is not None
        return Point(self.step, parsed.metrics, int(self.epoch), self._progress(parsed), counted=counted)

    def _has_position(self, parsed: ParsedLine) -> bool:
        return parsed.epoch is not None or parsed.step is not None

    def _follow(self, parsed: ParsedLine) -> None:
        """Update the position by the counters of the line."""
        if parsed.total_epochs:
            self.total_epochs = parsed.total_epochs
        if parsed.bar is None and parsed.metrics and parsed.step is not None and not self.counts_in_text:
            self.counts_in_text, self.counter, self.total_steps, self.before = True, 0, 0, 0
        if parsed.bar is not None:
            self._follow_bar(parsed)
        elif any(not HELD_OUT.search(name) for name in parsed.metrics):
            self._adopt_later_bar()
        self.has_epoch_bar = self.has_epoch_bar or (parsed.bar is not None and parsed.progress is not None)
        if parsed.epoch is not None and self._begins_epochs_anew(parsed.epoch):
            self.repeats_epochs = True
            if not self.counts_steps:
                self.before = self.step + (self.first_epoch == 0)
        if parsed.epoch is not None:
            self.is_counter_of_epoch = self.is_counter_of_epoch and int(parsed.epoch) == int(self.epoch)
            self.first_epoch = 0 if parsed.epoch < 1 or self.first_epoch == 0 else 1
            self.has_parts = self.has_parts or parsed.epoch != int(parsed.epoch)
            self.epoch = parsed.epoch
        if parsed.step is not None:
            # A bar is drawn again with the same count, also after a line that names the next epoch.
            began = not self.is_counter_of_epoch and (parsed.bar is None or parsed.epoch is not None)
            self._count(parsed.step, parsed.total_steps or 0, began=began)
        elif parsed.epoch is not None and not self.counts_steps and not self.has_parts:
            self.step = self.before + int(parsed.epoch)

    def _begins_epochs_anew(self, epoch: float) -> bool:
        """Return whether the line is about the first epoch again, after later ones."""
        return self.first_epoch is not None and not self.has_parts and int(epoch) == self.first_epoch < int(self.epoch)

    def _follow_bar(self, parsed: ParsedLine) -> None:
        """Leave the counts of a bar out that counts no training steps."""
        total = parsed.total_steps or 0
        if self.counts_in_text:
            parsed.step = parsed.total_steps = None
        if parsed.step is None or not total:
            return
        key = parsed.bar_key
        if key == self.later_bar:
            self.later_counter = parsed.step
        if key in (self.main_bar, self.later_bar):
            parsed.step = parsed.step if key == self.main_bar else None
        elif self.main_bar and total < self.main_total and not parsed.metrics:
            if self.counter >= self.main_total:
                self.later_bar, self.later_counter, self.later_total = key, parsed.step, total
            parsed.step = None
        else:
            self.main_bar, self.main_total, self.later_bar = key, total, ""
        parsed.total_steps = total if parsed.step is not None else None

    def _adopt_later_bar(self) -> None:
        if self.later_bar:
            self.main_bar, self.main_total = self.later_bar, self.later_total
            self.later_bar = ""
            self._count(self.later_counter, self.later_total, began=True)

    def _count(self, counter: int, total: int, *, began: bool) -> None:
        self.counts_steps = self.is_counter_of_epoch = True
        starts_anew = counter < self.counter or (began and total and counter <= self.counter)
        if starts_anew:
            self.before += max(self.counter, self.total_steps)
            self.restarts = True
        self.counter, self.total_steps = counter, total
        self.step = min(self.before + counter, MAX_COUNT)

    def _progress(self, parsed: ParsedLine) -> float | None:
        if parsed.progress is not None:
            return parsed.progress
        part = min(self.counter / self.total_steps, 1.0) if self.total_steps else 0.0
        if self.repeats_epochs:
            return None
        if self.first_epoch is None:
            return None if self.restarts or self.has_epoch_bar or not self.total_steps else part
        if not self.total_epochs:  # a bar beside fractions of epochs is that of the training
            return part if self.has_parts and self.total_steps and not self.restarts else None
        if self.has_parts:
            return min(self.epoch / self.total_epochs, 1.0)
        if not self.total_steps or not self.is_counter_of_epoch:
            part = 1.0 if parsed.metrics else 0.0  # metrics without a counter come at the end of an epoch
        return min(max((self.epoch - self.first_epoch + part) / self.total_epochs, 0.0), 1.0)
