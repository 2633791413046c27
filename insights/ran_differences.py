"""Columns of code and environment for comparisons, so that one look tells what changed between trainings."""

from collections.abc import Mapping, Sequence

from core.parallel import Column
from jobs.models import AttemptSoftware, Environment, Job, JobSource
from jobs.queries.provenance import environment_differences

__all__ = ["ran_columns"]

_DIGITS = 12
#: Highest number of differing packages that a value names.
_MOST_NAMED = 5


def ran_columns(jobs: Sequence[Job]) -> list[Column]:
    """Return the columns of code and environment; environments are told by their differences from the first one."""
    numbers = [job.pk for job in jobs]
    sources = JobSource.objects.defer("diff").in_bulk(numbers)
    rows = AttemptSoftware.objects.filter(job__in=numbers).select_related("environment").order_by("attempt", "host")
    environments = {row.job_id: row.environment for row in rows}  # that of the newest attempt comes last
    first = next((environments[number] for number in numbers if number in environments), None)
    return [
        Column("setting", "Code", [_code(job, sources) for job in jobs]),
        Column("setting", "Packages", [_environment(environments.get(number), first) for number in numbers]),
    ]


def _code(job: Job, sources: Mapping[int, JobSource]) -> str:
    source = sources.get(job.pk)
    digest = f"sha256 {job.model.digest[:_DIGITS]}"
    if source is None or not source.commit:
        return digest
    branch = f" on {source.branch}" if source.branch else ""
    return f"commit {source.commit[:_DIGITS]}{branch}{' with changes' if source.is_dirty else ''}, {digest}"


def _environment(environment: Environment | None, first: Environment | None) -> str | None:
    if environment is None or first is None:
        return None
    torch = environment.packages.get("torch", "none")
    named = f"{environment.digest[:_DIGITS]}: Python {environment.python}, torch {torch}"
    changes = environment_differences(first, environment)
    if not changes:
        return named
    left = len(changes) - _MOST_NAMED
    return "; ".join([named, *changes[:_MOST_NAMED], *([f"{left} more"] if left > 0 else [])])
