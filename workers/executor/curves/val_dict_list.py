"""Parser of `val_dict_list.json`: a list of objects with a step or an epoch and metrics, as scripts for WMLA write."""

import json
from collections.abc import Mapping
from typing import Any, Final

from workers.executor.curves.csv_files import EPOCHS, STEPS
from workers.executor.curves.parsed_points import Point, cleaned_name, number

__all__ = ["RESULTS_FILE", "points_of"]

RESULTS_FILE: Final = "val_dict_list.json"
_MAX_NAMES: Final = 10_000


def points_of(data: bytes) -> list[Point | None] | None:
    """Return a point per entry, None for an entry without step or metric; None if the file is no complete list."""
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return [_point(entry) for entry in entries] if isinstance(entries, list) else None


def _point(entry: Any) -> Point | None:
    if not isinstance(entry, Mapping):
        return None
    values = {name: number(str(value)) for name, value in entry.items() if _is_number(value)}
    epoch, step = _count(values, EPOCHS), _count(values, STEPS)
    step = epoch if step is None else step
    others = [name for name in values if name.lower() not in (*STEPS, *EPOCHS) and cleaned_name(name)]
    metrics = {cleaned_name(name): values[name] for name in others[:_MAX_NAMES]}
    return None if step is None or not metrics else Point(step, metrics, epoch or 0)


def _count(values: Mapping[str, float | None], names: tuple[str, ...]) -> int | None:
    found = next((value for name, value in values.items() if name.lower() in names), None)
    return int(found) if found is not None and 0 <= found < 2**53 else None


def _is_number(value: Any) -> bool:
    """Return whether the value is a number or a numeric text, which some scripts write."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number(str(value))
    except ValueError:
        return False
    return True
