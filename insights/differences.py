"""Table of what differs among many jobs. Pure: nothing here queries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from core.parallel import Column, axes_of
from jobs.models import Job
from jobs.options import OPTIONS

__all__ = ["MOST_JOBS", "default_axes", "differing", "results_of", "settings_of"]

MOST_JOBS = 200
#: Highest number of axes that are drawn by default, by kind of column.
_MOST_AXES: Final = {"setting": 6, "metric": 4}
_SETTINGS: dict[str, Callable[[Job], object]] = {
    "Model": lambda job: f"{job.model.model.name}, version {job.model.number}",
    "Dataset": lambda job: f"{job.dataset_name}, version {job.dataset.number}" if job.dataset else None,
    "Instance group": lambda job: job.instance_group.name,
    "Priority": lambda job: job.priority,
    **{option.noun: attrgetter(option.name) for option in OPTIONS.values() if option.shapes_results},
}


def settings_of(jobs: Sequence[Job]) -> list[Column]:
    """Return the settings, then every parameter that any of the jobs sets; elsewhere with the script's default."""
    settings = [Column("setting", name, [value(job) for job in jobs]) for name, value in _SETTINGS.items()]
    told = [job.told_parameters for job in jobs]
    names = {name for one in told for name in one}
    return settings + _union("setting", [{**_defaults(job, names), **one} for job, one in zip(jobs, told, strict=True)])


def _defaults(job: Job, names: Iterable[str]) -> dict[str, Any]:
    """Return the defaults that the job's script declares for these parameters."""
    declared = job.model.declared
    arguments = {name: declared.find(name) for name in names}
    return {name: argument.default for name, argument in arguments.items() if argument is not None}


def results_of(jobs: Sequence[Job]) -> list[Column]:
    """Return the results so far: steps, and the last value of each metric."""
    steps = Column("metric", "Steps", [job.run.step for job in jobs])
    return [steps, *_union("metric", [job.run.final_metrics for job in jobs])]


def _union(kind: str, values: Sequence[Mapping[str, Any]]) -> list[Column]:
    names = sorted({name for one in values for name in one})
    return [Column(kind, name, [one.get(name) for one in values]) for name in names]


def differing(jobs: Sequence[Job]) -> tuple[list[Column], list[Column]]:
    """Return the columns that differ, and those that are equal for all jobs."""
    columns = [*settings_of(jobs), *results_of(jobs)]
    return [one for one in columns if one.differs], [one for one in columns if not one.differs]


def default_axes(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that are drawn by default: the first settings, then the first results."""
    drawable = [axis.column for axis in axes_of(columns)]
    return [one for kind, most in _MOST_AXES.items() for one in [each for each in drawable if each.kind == kind][:most]]
