"""Frozen charts and tables, as JSON of numbers and strings. Pure.

A chart keeps the points of each line that a page would draw. A chart of GPUs keeps their number, but not the reasons
for changes: the scheduler's sentences name other trainings. In tables, paths and names of hosts are replaced.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from core.time import duration
from insights.comparison import Compared, Line, Point, Quantity

__all__ = [
    "TableRow",
    "frozen_chart",
    "frozen_table",
    "gpu_hours",
    "paths_in",
    "pattern_of",
    "thawed_chart",
    "thawed_table",
    "time_taken",
]

#: Path: absolute, from a home or the current directory, on a network share, or of Windows; not a web address.
_PATH = re.compile(
    r"""
    file:/+[^\s"',]+
    | (?<![^\W_]) (?<![/.]) (?: (?:~[\w.-]*|\.{1,2})?/[\w.@+-][^\s"',;:)\]]* | \\\\[^\s"',]+ | [A-Za-z]:[\\/][^\s"',]* )
    """,
    re.VERBOSE,
)
#: Relative path, or a name with slashes of a metric (loss/train) or model (org/model), or a fraction.
_SLASHED = re.compile(r"(?<![\w/.~:\\@+-])[\w@+-][\w.@+-]*/(?:[\w.@+-]+/)*[\w.@+-]*")
_FILE_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}$")
#: End of the names of parameters whose values are paths.
_PATH_PARAMETER = re.compile(r"(?:dir|directory|directories|path|folder|root|file)s?$", re.IGNORECASE)
_LEFT_OUT = "(left out: a path)"
_HOUR = 3600.0


@dataclass(frozen=True)
class TableRow:
    name: str
    #: Value of each training.
    values: Sequence[str]
    #: Whether the values differed before paths and hosts were replaced.
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


def frozen_table(lines: Sequence[Compared], hosts: Collection[str], metrics: Collection[str] = ()) -> dict[str, Any]:
    """Return the data of a table, rows that differ first, with paths and hosts replaced.

    metrics: names of metrics, which are not replaced even if they look like paths.
    """
    ordered = sorted(lines, key=lambda line: not line.differs)
    names = pattern_of(hosts)

    def redacted(text: str) -> str:
        return names.sub("(left out: a host)", _PATH.sub(_LEFT_OUT, text))

    def row_of(line: Compared) -> list[Any]:
        are_paths = bool(_PATH_PARAMETER.search(line.name))

        def redacted_match(found: re.Match[str]) -> str:
            return _LEFT_OUT if are_paths or _is_relative_path(found[0], metrics) else found[0]

        # The name of a row is that of a metric or parameter, so relative paths in it are not replaced.
        values = [_SLASHED.sub(redacted_match, redacted(text)) for text in line.values]
        return [redacted(line.name), values, line.differs]

    return {"rows": [row_of(line) for line in ordered]}


def _is_relative_path(slashed: str, metrics: Collection[str]) -> bool:
    """Return whether the text has three parts, or ends with a slash or file extension, and is no number or metric."""
    parts = slashed.rstrip("/").split("/")
    looks_like_one = len(parts) > 2 or slashed.endswith("/") or bool(_FILE_ENDING.search(slashed))
    return looks_like_one and slashed not in metrics and not all(part.isdigit() for part in parts)


def paths_in(text: str, metrics: Collection[str] = ()) -> list[str]:
    """Return the paths in a text. metrics: see `frozen_table`."""
    others = _SLASHED.findall(_PATH.sub(" ", text))
    return [*_PATH.findall(text), *(one for one in others if _is_relative_path(one, metrics))]


def pattern_of(hosts: Collection[str]) -> re.Pattern[str]:
    """Return a pattern of the names as whole words, case-insensitive."""
    longest_first = sorted(hosts, key=len, reverse=True)
    words = "|".join(map(re.escape, longest_first)) or "(?!)"
    return re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)


def thawed_table(data: dict[str, Any]) -> list[TableRow]:
    return [TableRow(*row) for row in data["rows"]]


def gpu_hours(line: Line, seconds: float) -> float:
    """Return the GPU-hours of a chart of GPUs. seconds: end of its last value, since the start."""
    ends = [*(point.seconds for point in line.points[1:]), seconds]
    spans = zip(line.points, ends, strict=False)
    return sum((point.value or 0) * max(0.0, end - point.seconds) for point, end in spans) / _HOUR


def time_taken(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)
