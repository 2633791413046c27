"""Columns of the list of jobs that one can choose: what every job has, and any metric or parameter of theirs.

The address holds the choice, so that a link, a saved filter and the CSV file have the same columns.
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

#: What every job has. Its name and state are always shown.
FACTS: Final = {
    "slots": "GPUs now",
    "most": "At most",
    "priority": "Priority",
    "progress": "Progress",
    "duration": "Duration",
    "reason": "Why",
    "tags": "Tags",
    "place": "In line",
    "model": "Model",
    "dataset": "Dataset",
    "group": "Instance group",
    "owner": "Owner",
    "submitted": "Submitted",
    "ended": "Ended",
}
#: Shown without a choice, where any row has something to say in them.
USUAL: Final = frozenset(FACTS) - {"dataset"}
#: How a metric and a parameter are named: `metric:loss`.
OF_ONE: Final = {"metric": "Metric", "parameter": "Parameter"}
_MOST: Final = 24
_LONGEST: Final = 200


@dataclass(frozen=True)
class ExtraColumn:
    """A metric or a parameter."""

    key: str
    label: str
    #: A key of OF_ONE.
    kind: str


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the columns in `reason,metric:loss`, each once. ValueError says which one there is not."""
    keys = tuple(dict.fromkeys(key for key in (part.strip() for part in text.split(",")) if key))
    for key in keys:
        kind, _, name = key.partition(":")
        if key not in FACTS and not (kind in OF_ONE and 0 < len(name) <= _LONGEST):
            raise ValueError(
                f"The list has no column “{key[:80]}”: take any of {', '.join(FACTS)}, metric:NAME and parameter:NAME."
            )
    if len(keys) > _MOST:
        raise ValueError(f"Choose at most {_MOST} columns, not {len(keys)}.")
    return keys


def joined_columns(given: QueryDict) -> dict[str, str]:
    """Return the parameters of an address, each once; a form with a box for each column repeats theirs."""
    values = {name: str(given[name]) for name in given}
    return {**values, **({"columns": ",".join(given.getlist("columns"))} if "columns" in given else {})}


def columns_of(user: Asking, given: dict[str, str]) -> dict[str, str]:
    """Add the columns that the user has chosen last to the parameters of an address that names none."""
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
    """Return the newest value of a metric, or a parameter; None where the job has none. The rows read have both."""
    values = job.run.final_metrics if column.kind == "metric" else job.told_parameters
    return values.get(column.label)
