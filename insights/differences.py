"""Table of what differs among many jobs, and the axes of their parallel coordinates. Pure: nothing here queries."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from core.templatetags.tidepool import figure
from jobs.models import Job
from jobs.options import OPTIONS

__all__ = ["MOST_JOBS", "Axis", "Column", "axes_of", "default_axes", "differing", "results_of", "settings_of", "word"]

MOST_JOBS = 200
#: Highest number of different words on an axis.
_MOST_WORDS = 12
#: Highest number of axes that are drawn by default, by kind of column.
_MOST_AXES: Final = {"setting": 6, "metric": 4}
#: Ratio of the ends from which an axis of positive numbers is logarithmic.
_LOG_FROM = 100.0
#: Highest number of intervals between the ticks of an axis.
_TICKS = 5
_SETTINGS: dict[str, Callable[[Job], object]] = {
    "Model": lambda job: f"{job.model.model.name}, version {job.model.number}",
    "Dataset": lambda job: f"{job.dataset_name}, version {job.dataset.number}" if job.dataset else None,
    "Instance group": lambda job: job.instance_group.name,
    "Priority": lambda job: job.priority,
    **{option.noun: attrgetter(option.name) for option in OPTIONS.values() if option.shapes_results},
}


@dataclass(frozen=True)
class Column:
    """Setting or metric with each job's value, in the order of the jobs; None if the job has none."""

    #: `setting` for settings and parameters, `metric` for results.
    kind: str
    name: str
    values: Sequence[Any]

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def words(self) -> list[str]:
        return [word(value) for value in self.values]

    @property
    def differs(self) -> bool:
        return len(set(self.words)) > 1


@dataclass(frozen=True)
class Axis:
    column: Column
    #: Position of each job, from 0 at the bottom to 1; None if it has no value.
    places: Sequence[float | None]
    #: (position, text) of each tick.
    ticks: Sequence[tuple[float, str]]


def settings_of(jobs: Sequence[Job]) -> list[Column]:
    """Return the settings, then every parameter that any of the jobs has."""
    settings = [Column("setting", name, [value(job) for job in jobs]) for name, value in _SETTINGS.items()]
    return settings + _union("setting", [job.told_parameters for job in jobs])


def results_of(jobs: Sequence[Job]) -> list[Column]:
    """Return the results so far: steps, and the last value of each metric."""
    steps = Column("metric", "Steps", [job.run.step for job in jobs])
    return [steps, *_union("metric", [job.run.final_metrics for job in jobs])]


def _union(kind: str, values: Sequence[Mapping[str, Any]]) -> list[Column]:
    names = sorted({name for one in values for name in one})
    return [Column(kind, name, [one.get(name) for one in values]) for name in names]


def word(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def differing(jobs: Sequence[Job]) -> tuple[list[Column], list[Column]]:
    """Return the columns that differ, and those that are equal for all jobs."""
    columns = [*settings_of(jobs), *results_of(jobs)]
    return [one for one in columns if one.differs], [one for one in columns if not one.differs]


def default_axes(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that are drawn by default: the first settings, then the first results."""
    drawable = [column for column in columns if _axis(column)]
    return [one for kind, most in _MOST_AXES.items() for one in [each for each in drawable if each.kind == kind][:most]]


def axes_of(columns: Sequence[Column]) -> list[Axis]:
    """Return an axis for each column that has numbers, or a few different words."""
    return [axis for column in columns if (axis := _axis(column))]


def _axis(column: Column) -> Axis | None:
    present = [value for value in column.values if value is not None]
    if present and all(_is_number(value) for value in present):
        return _numeric_axis(column, [float(value) for value in present])
    words = sorted(set(map(word, present)))
    if not 1 < len(words) <= _MOST_WORDS:
        return None
    place = {text: number / (len(words) - 1) for number, text in enumerate(words)}
    places = [None if value is None else place[word(value)] for value in column.values]
    return Axis(column, places, [(at, text) for text, at in place.items()])


def _numeric_axis(column: Column, numbers: Sequence[float]) -> Axis | None:
    low, high = min(numbers), max(numbers)
    if low == high:
        return None
    is_log = low > 0 and high / low >= _LOG_FROM
    scale = math.log if is_log else float
    start, span = scale(low), scale(high) - scale(low)
    places = [None if value is None else (scale(value) - start) / span for value in column.values]
    ticks = _powers_of_ten(low, high) if is_log else _round_steps(low, high)
    return Axis(column, places, [((scale(value) - start) / span, figure(value)) for value in ticks])


def _powers_of_ten(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / _TICKS)))]


def _round_steps(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, two to six of them."""
    power = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= _TICKS)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
