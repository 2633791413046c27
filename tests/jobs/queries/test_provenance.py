"""Tests of what exactly ran: storage of the executors' reports, REST, page and freeze."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs import actions
from jobs.actions.source import Source
from jobs.api.provenance import SourceInput
from jobs.models import AttemptSoftware, Environment, Job
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db

USED = {
    "python": "3.11.7",
    "platform": "linux-x86_64",
    "cuda": "13.0",
    "nccl": "2.27.3",
    "driver": "580.10",
    "packages": {"numpy": "1.26.4", "timm": "1.0.9", "torch": "2.13.0"},
    "origins": {},
}
COMMIT = "0123456789" * 4


def tell(cluster: Cluster, job: Job, **changes: Any) -> None:
    """Let the job's lead host report the software of its attempt."""
    job.run.refresh_from_db()
    host = cluster.hosts[job.run.lead_host]
    host.write(job, f"shim.{host.name}", "environment_used", **{**USED, **changes})
    cluster.report()


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    source = Source(
        repository="https://a:b@host/r.git", commit=COMMIT, branch="main", is_dirty=True, diff="+x hf_" + "a" * 30
    )
    made = submit(max_slots=1, source=source, requirements="timm==1.0.9 --hash=sha256:" + "0" * 64)
    cluster.turn()
    return Job.objects.get(pk=made.pk)


def test_tells_commit_and_versions(cluster: Cluster, job: Job, alice: User, client: Client) -> None:
    client.force_login(alice)
    before = client.get(f"/api/v1/jobs/{job.pk}/provenance/").json()
    assert (before["packages"], before["environment"], before["attempts"]) == ({}, "", [])
    tell(cluster, job)
    found = client.get(f"/api/v1/jobs/{job.pk}/provenance/").json()
    assert (found["repository"], found["commit"], found["branch"]) == ("https://host/r.git", COMMIT, "main")
    assert (found["is_dirty"], found["diff"]) == (True, "+x ***")
    assert (found["python"], found["packages"]) == ("3.11.7", USED["packages"])
    assert list(found["hashes"]) == ["timm"]
    [attempt] = found["attempts"]
    assert (attempt["torch"], attempt["driver"], attempt["environment"]) == ("2.13.0", "580.10", found["environment"])
    page = client.get(f"/jobs/{job.pk}/").content.decode()
    assert COMMIT in page
    assert "numpy==1.26.4" in page


def test_equal_lists_are_stored_once_and_a_second_report_changes_nothing(cluster: Cluster, submit: Submit) -> None:
    for _ in range(2):
        made = submit(max_slots=1)
        cluster.turn()
        job = Job.objects.get(pk=made.pk)
        tell(cluster, job)
        tell(cluster, job, python="3.12.0")
    assert AttemptSoftware.objects.count() == 2
    assert set(AttemptSoftware.objects.values_list("environment__python", flat=True)) == {"3.11.7"}
    assert Environment.objects.filter(python="3.11.7").count() == 1


def test_attempts_tell_what_changed(job: Job, alice: User, client: Client) -> None:
    parts = {"python": "3.11.7", "platform": "linux-x86_64"}
    for attempt, version in enumerate(("1.26.4", "2.1.0"), 1):
        environment = Environment.objects.create(digest=str(attempt) * 64, packages={"numpy": version}, **parts)
        AttemptSoftware.objects.create(
            job=job, attempt=attempt, host="gpu-host-1", environment=environment, driver=f"58{attempt}"
        )
    client.force_login(alice)
    attempts = client.get(f"/api/v1/jobs/{job.pk}/provenance/").json()["attempts"]
    assert [each["changes"] for each in attempts] == [[], ["numpy 1.26.4 -> 2.1.0", "driver 581 -> 582"]]


def test_a_browser_tells_no_source(submit: Submit, alice: User, client: Client) -> None:
    job = submit(max_slots=1)
    client.force_login(alice)
    assert client.get(f"/api/v1/jobs/{job.pk}/provenance/").json()["commit"] == ""
    assert "not from a repository" in client.get(f"/jobs/{job.pk}/").content.decode()


def test_a_report_that_is_too_large_is_set_aside(cluster: Cluster, job: Job) -> None:
    tell(cluster, job, packages={f"p{number}": "1" for number in range(5001)})
    assert not AttemptSoftware.objects.exists()
    job.refresh_from_db()
    assert job.state not in ("FAILED", "CANCELLED")


@pytest.mark.parametrize(
    "wrong",
    [
        {"commit": "HEAD"},
        {"diff": "+x"},
        {"left_out": [{"path": "a", "why": "b"}] * 101},
        {"nonsense": 1},
    ],
)
def test_a_wrong_source_is_refused(
    given: dict[str, Any], cluster: Cluster, alice: User, client: Client, wrong: dict[str, Any]
) -> None:
    client.force_login(alice)
    answer = client.post("/api/v1/jobs/", {**given, "source": wrong}, content_type="application/json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["source"])


def test_a_difference_is_limited_in_bytes() -> None:
    given = SourceInput(data={"diff": "+\u20ac" * 400_000, "commit": COMMIT, "is_dirty": True})
    assert not given.is_valid()
    assert list(given.errors) == ["diff"]


def test_a_clone_has_the_source(job: Job, alice: User) -> None:
    assert actions.clone(job, alice).source.commit == COMMIT


def test_hosts_of_an_attempt_with_other_packages_are_an_event(
    cluster: Cluster, submit: Submit, code: RegisteredModelVersion
) -> None:
    made = submit(max_slots=8, min_slots=8)
    cluster.turn()
    job = Job.objects.get(pk=made.pk)
    first, second = (cluster.hosts[f"gpu-host-{number}"] for number in (1, 2))
    many = {f"more{number:02}": "1" for number in range(20)}
    for host, packages in ((first, USED["packages"]), (second, {"numpy": "2.1.0", **many})):
        for _ in range(2):
            host.write(job, f"shim.{host.name}", "environment_used", **{**USED, "packages": packages})
            cluster.report()
    [event] = job.events.filter(reason="ENVIRONMENT_CHANGED")
    changes = event.detail["changes"]
    assert (event.detail["host"], event.detail["other"]) == (second.name, first.name)
    assert (changes[0], changes[-1], len(changes)) == ("more00 none -> 1", "13 more", 11)
