"""What a block of a report holds: charts and tables as plain numbers and words. Pure: nothing here reads.

A chart keeps the points that a page would draw, of each line. Of GPUs it keeps how many there were, and not why: the
scheduler's sentences name other trainings. A table keeps words, in which paths and names of hosts are left out.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from core.time import duration
from jobs.insight.comparison import Compared, Line, Point, Quantity

__all__ = [
    "PATH",
    "TableRow",
    "frozen_chart",
    "frozen_table",
    "gpu_hours",
    "pattern_of",
    "thawed_chart",
    "thawed_table",
    "time_taken",
]

#: Absolute, from somebody's home, from the present folder, of a network or of Windows. Addresses of the web are none.
PATH = re.compile(
    r"""
    file:/+[^\s"',]+
    | (?<![^\W_]) (?<![/.]) (?: (?:~[\w.-]*|\.{1,2})?/[\w.@+-][^\s"',;:)\]]* | \\\\[^\s"',]+ | [A-Za-z]:[\\/][^\s"',]* )
    """,
    re.VERBOSE,
)
_HOUR = 3600.0


@dataclass(frozen=True)
class TableRow:
    name: str
    #: One for each training.
    values: Sequence[str]
    #: As the values were before anything was left out.
    differs: bool


def frozen_chart(quantity: Quantity) -> dict[str, Any]:
    return {
        "title": quantity.title,
        "names": list(quantity.names),
        "is_stepped": quantity.is_stepped,
        "lines": [
            {
                "job": line.job,
                "label": line.label,
                "metric": line.metric,
                "every": line.every,
                "points": [[one.step, round(one.seconds, 1), one.value, one.epoch] for one in line.points],
            }
            for line in quantity.lines
        ],
    }


def thawed_chart(data: dict[str, Any]) -> Quantity:
    lines = [
        Line(one["job"], one["label"], [Point(*point) for point in one["points"]], one["metric"], one["every"])
        for one in data["lines"]
    ]
    return Quantity(data["title"], lines, data["names"], is_stepped=data["is_stepped"])


def frozen_table(lines: Sequence[Compared], hosts: Collection[str]) -> dict[str, Any]:
    """Freeze the lines, differences first. hosts: names that are left out of its words, as paths are."""
    ordered = sorted(lines, key=lambda line: not line.differs)
    names = pattern_of(hosts)

    def discreet(text: str) -> str:
        return names.sub("(left out: a host)", PATH.sub("(left out: a path)", text))

    return {"rows": [[discreet(one.name), [discreet(value) for value in one.values], one.differs] for one in ordered]}


def pattern_of(hosts: Collection[str]) -> re.Pattern[str]:
    """Return what matches each of the names, in any case, where no letter or digit stands beside it."""
    longest_first = sorted(hosts, key=len, reverse=True)
    words = "|".join(map(re.escape, longest_first)) or "(?!)"
    return re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)


def thawed_table(data: dict[str, Any]) -> list[TableRow]:
    return [TableRow(*row) for row in data["rows"]]


def gpu_hours(line: Line, seconds: float) -> float:
    """Return how long GPUs trained, together. seconds: until when the last number of GPUs holds, since the start."""
    ends = [*(point.seconds for point in line.points[1:]), seconds]
    spans = zip(line.points, ends, strict=False)
    return sum((point.value or 0) * max(0.0, end - point.seconds) for point, end in spans) / _HOUR


def time_taken(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)
