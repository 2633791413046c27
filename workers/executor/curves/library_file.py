"""Parser of a line of `journal/library.jsonl`, which `tidepool.own_checkpoints` writes."""

import json
from collections.abc import Mapping
from typing import Any

from workers.executor.curves.parsed_points import Point, cleaned_name, number

__all__ = ["point_of_moment"]

_MOST = 2**53


def point_of_moment(line: str) -> Point | None:
    """Return the point of a line; None if it is none of ours: the script owns the folder."""
    try:
        values = json.loads(line)
        step, epoch = _count(values["step"]), _count(values["epoch"])
        part = values["progress"]
        progress = None if part is None else number(str(part))
        return Point(step, _metrics(values["metrics"]), epoch, progress, number(str(values["at"])))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(value)
    return value


def _metrics(values: Mapping[str, Any]) -> dict[str, float | None]:
    named = ((cleaned_name(name), value) for name, value in values.items())
    return {name: None if value is None else number(str(value)) for name, value in named if name}
