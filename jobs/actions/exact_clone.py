"""Conditions of a clone that runs exactly what another training ran: its code and packages as they were."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import Conflict
from jobs.actions.exact_environment import Locked, Packages, locked
from jobs.files.job_folder import job_folder
from jobs.models import Environment, Job
from jobs.queries.provenance import Ran, ran
from workers.executor.environments.software import cluster_packages

__all__ = ["Exactly", "exactly"]

_MOST_FILES = 10


@dataclass(frozen=True)
class Exactly:
    """What a training ran, for one that runs it again."""

    job: int
    attempt: int
    environment: Locked
    #: Submitted files that the run has changed.
    changed_files: Sequence[str]

    @property
    def code_problem(self) -> str:
        """Return a sentence about code that is no longer what was submitted, or ""."""
        if not self.changed_files:
            return ""
        more = ", and others" if len(self.changed_files) > _MOST_FILES else ""
        names = ", ".join(self.changed_files[:_MOST_FILES])
        return (
            f"The run has changed files of its own code ({names}{more}), and they are not kept as they were submitted."
        )


def exactly(job: Job) -> Exactly:
    """Return what the newest attempt of the job ran. Raises Conflict if that is not known."""
    told = ran(job)
    if told.newest is None:
        raise Conflict(
            f"The versions of training {job.pk} are not known: it has not started, or did before they were recorded. "
            "Clone it instead."
        )
    recorded = _packages_of(told.newest)
    environment = locked(
        recorded, job.requirements.splitlines(), Packages(platform.python_version(), *cluster_packages())
    )
    return Exactly(
        job.pk,
        told.attempts[-1].attempt,
        Locked(environment.lines, environment.missing, [*environment.notes, *_other_hosts(told)]),
        job_folder(job).changed_files(),
    )


def _packages_of(environment: Environment) -> Packages:
    return Packages(environment.python, environment.packages, environment.origins)


def _other_hosts(told: Ran) -> list[str]:
    """Return a sentence about hosts of the attempt that had other packages."""
    newest = told.attempts[-1]
    others = [
        host
        for each in told.attempts
        if each.attempt == newest.attempt and each.environment.pk != newest.environment.pk
        for host in each.hosts
    ]
    if not others:
        return []
    return [f"{', '.join(others)} had other packages than {', '.join(newest.hosts)}, whose packages it has."]
