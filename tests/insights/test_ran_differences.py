"""Tests of the columns of code and environment in comparisons."""

import pytest

from insights.ran_differences import ran_columns
from jobs.models import AttemptSoftware, Environment, Job, JobSource
from tests.factories import JobFactory
from tracking.runs import _source_tags

pytestmark = pytest.mark.django_db

COMMIT = "0123456789" * 4


def _ran(job: Job, attempt: int, packages: dict[str, str]) -> None:
    digest = str(sorted(packages.items()))[:64]
    environment, _ = Environment.objects.get_or_create(
        digest=digest, defaults={"python": "3.11.7", "platform": "linux-x86_64", "packages": packages}
    )
    AttemptSoftware.objects.create(job=job, attempt=attempt, host="gpu-host-1", environment=environment)


def test_one_look_tells_what_changed() -> None:
    first, second, third = (JobFactory() for _ in range(3))
    JobSource.objects.create(job=first, commit=COMMIT, branch="main")
    JobSource.objects.create(job=second, commit=COMMIT, branch="main", is_dirty=True, diff="+x")
    _ran(first, 1, {"numpy": "1.26.4", "torch": "2.13.0"})
    _ran(second, 1, {"numpy": "1.26.4", "torch": "2.13.0"})
    _ran(second, 2, {"numpy": "2.1.0", "torch": "2.13.0"})
    code, environment = ran_columns([first, second, third])
    # The environment that was chosen is a setting of that name.
    assert (code.name, environment.name) == ("Code", "Packages")
    digest = "sha256 000000000000"
    assert code.values == [
        f"commit 012345678901 on main, {digest}",
        f"commit 012345678901 on main with changes, {digest}",
        digest,
    ]
    assert str(environment.values[0]).endswith(": Python 3.11.7, torch 2.13.0")
    assert str(environment.values[1]).endswith("; numpy 1.26.4 -> 2.1.0")
    assert environment.values[2] is None
    assert environment.differs


def test_mlflow_gets_the_commit() -> None:
    job, other = JobFactory(), JobFactory()
    JobSource.objects.create(job=job, commit=COMMIT, repository="https://host/r.git")
    assert _source_tags(job) == {
        "mlflow.source.git.commit": COMMIT,
        "mlflow.source.git.repoURL": "https://host/r.git",
    }
    assert _source_tags(other) == {}
