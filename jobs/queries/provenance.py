"""What exactly ran: the code's origin, and the software of each attempt with what changed between attempts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from packaging.utils import canonicalize_name

from jobs.models import AttemptSoftware, Environment, Job, JobSource
from workers.executor.environments.requirements import hashes_in, is_package, package_in

__all__ = ["AttemptRan", "Ran", "environment_differences", "ran"]

#: Most differences that a sentence names.
_MOST_NAMED = 40


@dataclass(frozen=True)
class AttemptRan:
    """The software of hosts of an attempt that have the same one."""

    attempt: int
    hosts: Sequence[str]
    environment: Environment
    cuda: str
    nccl: str
    driver: str
    #: Differences from the row before, such as "numpy 1.26.4 -> 2.1.0".
    changes: Sequence[str]

    @property
    def torch(self) -> str:
        return str(self.environment.packages.get("torch", ""))


@dataclass(frozen=True)
class Ran:
    job: Job
    #: None: submitted by a browser, or before this was recorded.
    source: JobSource | None
    #: Oldest attempt first. Empty: the job has not started, or did before this was recorded.
    attempts: Sequence[AttemptRan]

    @property
    def newest(self) -> Environment | None:
        return self.attempts[-1].environment if self.attempts else None

    @property
    def hashes(self) -> dict[str, list[str]]:
        """Return the hashes that the job's requirements have, by name of the distribution."""
        lines = [line for line in self.job.requirements.splitlines() if is_package(line) and hashes_in(line)]
        return {canonicalize_name(package_in(line).name): hashes_in(line) for line in lines}


def ran(job: Job) -> Ran:
    rows = AttemptSoftware.objects.filter(job=job).select_related("environment")
    keyed = sorted(rows, key=lambda row: (row.attempt, row.environment_id, row.cuda, row.nccl, row.driver, row.host))
    attempts: list[AttemptRan] = []
    for _, same in groupby(keyed, key=lambda row: (row.attempt, row.environment_id, row.cuda, row.nccl, row.driver)):
        hosts = list(same)
        first = hosts[0]
        facts = (first.cuda, first.nccl, first.driver)
        changes = _changes(attempts[-1], first) if attempts else []
        attempts.append(AttemptRan(first.attempt, [row.host for row in hosts], first.environment, *facts, changes))
    return Ran(job, JobSource.objects.filter(job=job).first(), attempts)


def _changes(before: AttemptRan, row: AttemptSoftware) -> list[str]:
    changed = environment_differences(before.environment, row.environment)
    names = {"CUDA": "cuda", "NCCL": "nccl", "driver": "driver"}
    facts = ((label, getattr(before, name), getattr(row, name)) for label, name in names.items())
    return [*changed, *_differences(facts)]


def environment_differences(old: Environment, new: Environment) -> list[str]:
    """Return what differs between two environments, such as "numpy 1.26.4 -> 2.1.0"."""
    if old.pk == new.pk:
        return []
    names = sorted({*old.packages, *new.packages, *old.origins, *new.origins})
    packages = ((name, _version(old, name), _version(new, name)) for name in names)
    rows = [("Python", old.python, new.python), ("platform", old.platform, new.platform), *packages]
    found = list(_differences(rows))
    left = len(found) - _MOST_NAMED
    return [*found[:_MOST_NAMED], f"{left} more"] if left > 0 else found


def _version(environment: Environment, name: str) -> str:
    versions: Mapping[str, str] = environment.packages
    origin = environment.origins.get(name)
    return versions.get(name, "") + (f" ({origin})" if origin else "")


def _differences(rows: Iterable[tuple[str, str, str]]) -> Iterable[str]:
    return [f"{name} {old or 'none'} -> {new or 'none'}" for name, old, new in rows if old != new]
