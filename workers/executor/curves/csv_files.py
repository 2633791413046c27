"""Parser of CSV files of metrics, such as those of Lightning's and Keras' CSVLogger."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from workers.executor.curves.parsed_points import Point, cleaned_name, number

__all__ = ["EPOCHS", "STEPS", "Table"]

#: Lower-case names of columns that hold the step, and the epoch.
STEPS = ("step", "global_step", "steps", "iteration", "iter", "batch", "trained_steps")
EPOCHS = ("epoch", "epochs")
_MAX_COLUMNS = 10_000
_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class Table:
    """Columns of a file, from its first line."""

    delimiter: str
    columns: tuple[str, ...]
    #: Index of the column with the step, and with the epoch; None if there is no such column.
    step: int | None
    epoch: int | None

    @classmethod
    def of(cls, header: str) -> "Table | None":
        """Parse a header; return None if it names neither step nor epoch, or no other column."""
        delimiter = max(_DELIMITERS, key=header.count)
        names = [name.strip() for name in _cells(header, delimiter)]
        if not 2 <= len(names) <= _MAX_COLUMNS:
            return None
        lower = [name.lower() for name in names]
        step = next((lower.index(name) for name in STEPS if name in lower), None)
        epoch = next((lower.index(name) for name in EPOCHS if name in lower), None)
        if step is None and epoch is None:
            return None
        return cls(delimiter, tuple(map(cleaned_name, names)), step, epoch)

    def point(self, line: str) -> Point | None:
        """Return the point of a row; None if the row has no number or no step."""
        cells = _cells(line, self.delimiter)
        if len(cells) != len(self.columns):
            return None
        epoch = _count(cells, self.epoch)
        step = _count(cells, self.step) if self.step is not None else epoch
        if step is None:
            return None
        metrics = {}
        for place, (name, cell) in enumerate(zip(self.columns, cells, strict=True)):
            if place in (self.step, self.epoch) or not name or not cell.strip():
                continue
            try:
                metrics[name] = number(cell)
            except ValueError:  # a text
                continue
        return Point(step, metrics, epoch or 0) if metrics else None


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # malformed line
        return []


def _count(cells: Sequence[str], place: int | None) -> int | None:
    try:
        value = None if place is None else number(cells[place])
    except ValueError:
        return None
    return int(value) if value is not None and 0 <= value < 2**53 else None
