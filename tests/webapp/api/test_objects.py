"""Alice owns a job, Bob must not know of it, Carol is staff."""

import pytest

from jobs.models import Job
from tests.factories import HostFactory

pytestmark = pytest.mark.django_db

READS = ["", "allocation/", "ranks/", "events/", "metrics/", "logs/", "checkpoints/", "result/"]
WRITES = ["cancel/", "suspend/", "resume/", "clone/"]


@pytest.mark.parametrize("what", READS)
def test_a_job_is_read_by_its_owner_and_staff_only(alices_job, alice_api, bob_api, carol_api, what):
    address = f"/api/v1/jobs/{alices_job.pk}/{what}"
    expected = 404 if what == "result/" else 200  # the job has not started: there is nothing to download
    assert alice_api.get(address).status_code == expected
    assert carol_api.get(address).status_code == expected
    refused = bob_api.get(address)
    assert refused.status_code == 404
    assert "T1" not in refused.content.decode()


@pytest.mark.parametrize("what", WRITES)
def test_a_job_is_changed_by_its_owner_and_staff_only(alices_job, bob_api, what):
    assert bob_api.post(f"/api/v1/jobs/{alices_job.pk}/{what}").status_code == 404
    assert Job.objects.get().state == "PENDING"


def test_others_cannot_change_its_priority(alices_job, bob_api, carol_api):
    address = f"/api/v1/jobs/{alices_job.pk}/"
    assert bob_api.patch(address, {"priority": 1}, format="json").status_code == 404
    assert carol_api.patch(address, {"priority": 1}, format="json").json()["priority"] == 1


def test_the_list_holds_what_the_viewer_may_see(alices_job, alice_api, bob_api, carol_api):
    names = [
        [job["name"] for job in api.get("/api/v1/jobs/").json()["results"]] for api in (alice_api, bob_api, carol_api)
    ]
    assert names == [["T1"], [], ["T1"]]


def test_ones_own_answers_differ_from_nothing_only_in_the_object(alices_job, bob_api):
    """A stranger cannot tell a job that is somebody else's from one that does not exist."""
    hidden = bob_api.get(f"/api/v1/jobs/{alices_job.pk}/").json()
    missing = bob_api.get("/api/v1/jobs/424242/").json()
    assert hidden["code"] == missing["code"]
    assert hidden["error"].replace(str(alices_job.pk), "N") == missing["error"].replace("424242", "N")


@pytest.mark.parametrize("what", ["datasets/", "models/", "hosts/", "slots/", "resource-groups/", "instance-groups/"])
def test_what_is_shared_is_read_by_everybody(submission, alice_api, bob_api, what):
    assert alice_api.get(f"/api/v1/{what}").json()["results"]
    assert alice_api.get(f"/api/v1/{what}").json() == bob_api.get(f"/api/v1/{what}").json()


@pytest.mark.parametrize(
    "what",
    [
        "resource-groups/",
        "instance-groups/",
        "hosts/gpu-host-9/drain/",
        "hosts/gpu-host-9/resume/",
        "hosts/gpu-host-9/restore/",
    ],
)
def test_groups_and_hosts_are_changed_by_staff_only(alice_api, what):
    HostFactory(name="gpu-host-9")
    answer = alice_api.post(f"/api/v1/{what}", {}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_staff_drains_and_resumes_a_host(carol_api):
    HostFactory(name="gpu-host-9")
    assert carol_api.post("/api/v1/hosts/gpu-host-9/drain/").json()["state"] == "DRAINING"
    assert carol_api.post("/api/v1/hosts/gpu-host-9/drain/").status_code == 409
    assert carol_api.post("/api/v1/hosts/gpu-host-9/resume/").json()["state"] == "ONLINE"
