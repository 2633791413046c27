"""The trainings of a comparison in groups, each of which is one line: by what they have in common, or by a setting.

`static/js/line_groups.js` draws a group as the mean of its trainings, within the span from the least to the most.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.charts import JobLook, job_look
from core.errors import field_error
from core.parallel import Column
from core.roles import Asking
from core.templatetags.tidepool import figure
from insights.comparison import Compared
from insights.differences import results_of, settings_of
from jobs.models import Job
from jobs.queries.job_groups import grouping_labels, jobs_by_name

__all__ = ["MOST_GROUPS", "LineGroup", "LineGrouping", "grouped_results", "line_groupings", "requested_grouping"]

#: Trainings may have any number of tags; colours repeat after as many.
MOST_GROUPS = 12


@dataclass(frozen=True)
class LineGroup:
    #: From 1: marks the line, as a letter marks a training.
    number: int
    name: str
    #: Ids of the trainings.
    jobs: Sequence[int]

    @property
    def look(self) -> JobLook:
        return job_look(self.number)


@dataclass(frozen=True)
class LineGrouping:
    #: Value of the parameter `group`: `model`, or a column's key such as `setting:lr`.
    key: str
    label: str
    #: Whether the groups have a setting or a parameter in common.
    is_setting: bool
    groups: Sequence[LineGroup]
    #: Number of groups beyond the largest ones, which are not drawn.
    left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the groups as the page's script draws them."""
        groups = [
            {"number": one.number, "name": one.name, "jobs": one.jobs, "colour": one.look.colour} for one in self.groups
        ]
        return {"key": self.key, "groups": groups}


def line_groupings(user: Asking, jobs: Sequence[Job]) -> list[LineGrouping]:
    """Return the groupings by which the list can be grouped, and those by settings and parameters that differ."""
    labels = grouping_labels(user)
    found = jobs_by_name(jobs, labels)
    shared = [_grouping(kind, label, found[kind]) for kind, label in labels.items()]
    differ = [one for one in settings_of(jobs) if one.differs and one.name not in labels.values()]
    return shared + [_grouping(one.key, one.name, _by_word(one, jobs), is_setting=True) for one in differ]


def requested_grouping(groupings: Sequence[LineGrouping], key: str) -> LineGrouping | None:
    """Return the grouping; "": none. Raises UserError if these trainings have no such grouping."""
    found = next((one for one in groupings if one.key == key), None)
    if key and found is None:
        raise field_error("group", f"The lines cannot be grouped by “{key[:80]}”: choose another grouping.")
    return found


def grouped_results(jobs: Sequence[Job], grouping: LineGrouping) -> list[Compared]:
    """Return the results so far, with the mean and the span of each group."""
    rows = []
    for column in results_of(jobs):
        values = dict(zip([job.pk for job in jobs], column.numbers, strict=True))
        rows.append(Compared(column.name, [_span([values[job] for job in one.jobs]) for one in grouping.groups]))
    return rows


def _by_word(column: Column, jobs: Sequence[Job]) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for job, value, text in zip(jobs, column.values, column.words, strict=True):
        found.setdefault(None if value is None else text, []).append(job.pk)
    return found


def _grouping(
    key: str, label: str, members: Mapping[str | None, Sequence[int]], *, is_setting: bool = False
) -> LineGrouping:
    largest = sorted(members, key=lambda name: -len(members[name]))[:MOST_GROUPS]
    groups = [
        LineGroup(number, "none" if name is None else name, members[name])
        for number, name in enumerate(sorted(largest, key=_order), start=1)
    ]
    return LineGrouping(key, label, is_setting, groups, len(members) - len(groups))


def _order(name: str | None) -> tuple[int, float, str]:
    """Sort numbers by value, then words, then the group without a value."""
    if name is None:
        return 2, 0, ""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, "") if math.isfinite(number) else (1, 0, name)


def _span(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    mean, least, most = sum(numbers) / len(numbers), min(numbers), max(numbers)
    return figure(mean) if least == most else f"{figure(mean)} ({figure(least)} to {figure(most)})"
