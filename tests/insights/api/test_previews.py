"""Previews and the undoing of changes by REST: the same bodies as the real thing, nothing written, nobody named."""

import pytest

from insights.api.jobs import PreviewOutput
from jobs.models import Job, JobEvent

pytestmark = pytest.mark.django_db

PREVIEW = "/api/v1/jobs/preview/"


def test_a_submissions_preview(alice_api, submission):
    answer = alice_api.post(PREVIEW, submission, format="json")
    assert answer.status_code == 200
    seen = answer.json()
    assert set(seen) == set(PreviewOutput().fields)
    assert (seen["slots"], seen["target_slots"], seen["others"]) == (4, 4, [])
    assert seen["reason"]["text"]
    assert not Job.objects.exists()


def test_what_would_be_refused_is_refused(alice_api, submission):
    bad = {**submission, "model": "nothing", "max_slots": 99, "priority": 0}
    preview, real = (alice_api.post(address, bad, format="json") for address in (PREVIEW, "/api/v1/jobs/"))
    assert preview.status_code == real.status_code == 400
    assert preview.json() == real.json()
    assert set(preview.json()["fields"]) == {"model", "max_slots", "priority"}


def test_a_changes_preview_names_strangers_to_nobody(alice_api, bob_api, alices_job, submission):
    bob_api.post("/api/v1/jobs/", {**submission, "name": "bobs-secret"}, format="json")
    address = f"/api/v1/jobs/{alices_job.pk}/preview/"
    seen = alice_api.post(address, {"priority": 10_000}, format="json").json()
    assert seen["before_slots"] == 2
    assert seen["others"][0]["name"] == "another user's training"
    assert "bobs-secret" not in repr(seen)
    assert bob_api.post(address, {"priority": 1}, format="json").status_code == 404
    assert alice_api.post(address, {"priority": 0}, format="json").json()["fields"].keys() == {"priority"}
    assert alice_api.post(address, {"gpus": 2}, format="json").status_code == 400
    alices_job.refresh_from_db()
    assert alices_job.priority == 5000


def test_a_change_is_undone_by_its_event(alice_api, bob_api, alices_job):
    address = f"/api/v1/jobs/{alices_job.pk}/"
    alice_api.patch(address, {"priority": 10_000}, format="json")
    seq = JobEvent.objects.filter(job=alices_job, reason="PRIORITY_CHANGED").get().seq
    assert bob_api.post(f"{address}events/{seq}/undo/").status_code == 404
    assert alice_api.post(f"{address}events/{seq}/undo/").json()["priority"] == 5000
    again = alice_api.post(f"{address}events/{seq}/undo/")
    assert (again.status_code, again.json()["code"]) == (409, "stale_job")
    assert alice_api.post(f"{address}events/1/undo/").status_code == 404


@pytest.mark.parametrize("field", ["name", "model", "max_slots", "priority", "parameters", "initial_weights"])
def test_a_bad_value_is_answered_as_by_a_submission(alice_api, submission, field):
    for value in (None, True, -1, 1.5, "", "a\0b", "x" * 20_000, [], {"a": {"b": 1}}):
        body = {**submission, field: value}
        preview, real = (alice_api.post(address, body, format="json") for address in (PREVIEW, "/api/v1/jobs/"))
        assert (preview.status_code, real.status_code) in ((400, 400), (200, 201)), value
        if real.status_code == 400:
            assert preview.json() == real.json()
