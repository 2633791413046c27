"""What a block of a report holds: charts and tables as plain numbers and words. Pure: nothing here reads.

A chart keeps the points that a page would draw, of each line. Of GPUs it keeps how many there were, and not why: the
scheduler's sentences name other trainings. A table keeps words, in which paths and names of hosts are left out.
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

#: Absolute, from somebody's home, from the present folder, of a network or of Windows. Addresses of the web are none.
_PATH = re.compile(
    r"""
    file:/+[^\s"',]+
    | (?<![^\W_]) (?<![/.]) (?: (?:~[\w.-]*|\.{1,2})?/[\w.@+-][^\s"',;:)\]]* | \\\\[^\s"',]+ | [A-Za-z]:[\\/][^\s"',]* )
    """,
    re.VERBOSE,
)
#: A path from a folder that is not said, or the name of a metric (loss/train) or a model (org/model), or a fraction.
_SLASHED = re.compile(r"(?<![\w/.~:\\@+-])[\w@+-][\w.@+-]*/(?:[\w.@+-]+/)*[\w.@+-]*")
_FILE_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}$")
#: Ends the names of parameters whose values are paths.
_OF_PATHS = re.compile(r"(?:dir|directory|directories|path|folder|root|file)s?$", re.IGNORECASE)
_LEFT_OUT = "(left out: a path)"
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


def frozen_table(lines: Sequence[Compared], hosts: Collection[str], metrics: Collection[str] = ()) -> dict[str, Any]:
    """Freeze the lines, differences first. hosts: names that are left out of its words, as paths are.

    metrics: names that are no paths, though they look like one.
    """
    ordered = sorted(lines, key=lambda line: not line.differs)
    names = pattern_of(hosts)

    def discreet(text: str) -> str:
        return names.sub("(left out: a host)", _PATH.sub(_LEFT_OUT, text))

    def row_of(line: Compared) -> list[Any]:
        are_paths = bool(_OF_PATHS.search(line.name))

        def shown(found: re.Match[str]) -> str:
            return _LEFT_OUT if are_paths or _is_relative_path(found[0], metrics) else found[0]

        # A row's own name is that of a metric or a parameter.
        return [discreet(line.name), [_SLASHED.sub(shown, discreet(text)) for text in line.values], line.differs]

    return {"rows": [row_of(line) for line in ordered]}


def _is_relative_path(slashed: str, metrics: Collection[str]) -> bool:
    """Of three parts, with a slash or a file's ending at its end; neither a number nor the name of a metric."""
    parts = slashed.rstrip("/").split("/")
    looks_like_one = len(parts) > 2 or slashed.endswith("/") or bool(_FILE_ENDING.search(slashed))
    return looks_like_one and slashed not in metrics and not all(part.isdigit() for part in parts)


def paths_in(text: str, metrics: Collection[str] = ()) -> list[str]:
    """Return the paths that a text names. metrics: as of `frozen_table`."""
    others = _SLASHED.findall(_PATH.sub(" ", text))
    return [*_PATH.findall(text), *(one for one in others if _is_relative_path(one, metrics))]


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
