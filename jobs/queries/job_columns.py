"""Columns that users can choose for the list of jobs: facts of every job, and any metric or parameter.

The address holds the choice, so that a link, a saved filter and the CSV file show the same columns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import QueryDict

from core.roles import Asking
from jobs.models import ChosenColumns, Job

__all__ = [
    "FACTS",
    "OF_ONE",
    "USUAL",
    "ExtraColumn",
    "columns_of",
    "extra_columns",
    "joined_columns",
    "names_of",
    "parse_columns",
    "value_of",
]

#: Columns of every job -> heading. The name and state are always shown.
FACTS: Final = {
    "slots": "GPUs now",
    "most": "At most",
    "priority": "Priority",
    "progress": "Progress",
    "duration": "Duration",
    "reason": "Why",
    "tags": "Tags",
    "place": "Queue position",
    "model": "Model",
    "dataset": "Dataset",
    "group": "Instance group",
    "owner": "Owner",
    "submitted": "Submitted",
    "ended": "Ended",
}
#: Columns that are shown by default, if any row has a value in them.
USUAL: Final = frozenset(FACTS) - {"dataset"}
#: Kinds of metric and parameter columns, whose keys have the form `metric:loss`.
OF_ONE: Final = {"metric": "Metric", "parameter": "Parameter"}
_MOST: Final = 24
_LONGEST: Final = 200


@dataclass(frozen=True)
class ExtraColumn:
    """A column for a metric or a parameter."""

    key: str
    label: str
    #: A key of OF_ONE.
    kind: str


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the columns of `reason,metric:loss` without duplicates. Raises ValueError that names an unknown one."""
    keys = tuple(dict.fromkeys(key for key in (part.strip() for part in text.split(",")) if key))
    for key in keys:
        kind, _, name = key.partition(":")
        if key not in FACTS and not (kind in OF_ONE and 0 < len(name) <= _LONGEST):
            raise ValueError(
                f"The list has no column “{key[:80]}”: use any of {', '.join(FACTS)}, metric:NAME and parameter:NAME."
            )
    if len(keys) > _MOST:
        raise ValueError(f"Choose at most {_MOST} columns, not {len(keys)}.")
    return keys


def joined_columns(given: QueryDict) -> dict[str, str]:
    """Return the query parameters; the `columns` of a form with one box per column are joined."""
    values = {name: str(given[name]) for name in given}
    return {**values, **({"columns": ",".join(given.getlist("columns"))} if "columns" in given else {})}


def columns_of(user: Asking, given: dict[str, str]) -> dict[str, str]:
    """Add the user's last chosen columns to query parameters that name none."""
    if given.get("columns"):
        return given
    kept = ChosenColumns.objects.filter(owner_id=user.pk).values_list("columns", flat=True).first()
    return {**given, "columns": kept} if kept else given


def extra_columns(keys: Iterable[str]) -> list[ExtraColumn]:
    """Return the metrics and parameters among the chosen columns."""
    split = [(key, *key.partition(":")[::2]) for key in keys if ":" in key]
    return [ExtraColumn(key, name, kind) for key, kind, name in split]


def names_of(jobs: Sequence[Job]) -> list[ExtraColumn]:
    """Return the metrics and parameters that any of these jobs has."""
    metrics = sorted({name for job in jobs for name in job.run.final_metrics})
    parameters = sorted({name for job in jobs for name in job.told_parameters})
    keys = [*(f"metric:{name}" for name in metrics), *(f"parameter:{name}" for name in parameters)]
    return extra_columns(key for key in keys if "," not in key and len(key) <= _LONGEST)


def value_of(job: Job, column: ExtraColumn) -> Any:
    """Return a metric's newest value or a parameter's value; None if the job has none. Needs no further query."""
    values = job.run.final_metrics if column.kind == "metric" else job.told_parameters
    return values.get(column.label)
