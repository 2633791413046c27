"""A job's life over REST, as far as it goes without GPUs."""

import math
import threading
from datetime import datetime

import pytest

from jobs.management.commands.run_scheduler import Scheduler
from jobs.models import AllocationPoint, Job, MetricPoint
from tests.factories import JobFactory, set_job
from tests.html import html_of

pytestmark = pytest.mark.django_db


def _post(api, job: int, verb: str):
    return api.post(f"/api/v1/jobs/{job}/{verb}/")


def test_submitting_answers_the_job(alice_api, submission):
    answer = alice_api.post("/api/v1/jobs/", submission, format="json")
    assert answer.status_code == 201
    job = answer.json()
    assert (job["name"], job["owner"], job["model"], job["dataset"], job["state"]) == (
        "T1",
        "alice",
        "cnn",
        "digits",
        "PENDING",
    )
    assert (job["slots"], job["error"], job["finished_at"]) == (0, None, None)
    assert job["reason"]["code"] == "SUBMITTED"
    submitted_at = datetime.fromisoformat(job["submitted_at"])
    assert submitted_at.utcoffset().total_seconds() == 0
    assert (job["queue_position"], job["expected_start"]) == (None, None), "no plan has decided about it yet"
    assert alice_api.get(f"/api/v1/jobs/{job['id']}/").json() == job


def test_references_by_id(alice_api, submission, alices_job):
    submission |= {
        "model": alices_job.model.model_id,
        "dataset": str(alices_job.dataset.dataset_id),
        "instance_group": alices_job.instance_group_id,
    }
    assert alice_api.post("/api/v1/jobs/", submission, format="json").status_code == 201


@pytest.mark.parametrize("weights", ["some", "", [1], True, 1.5, {"job": 1}, {"checkpoint": "1"}, {"checkpoint": 9}, 9])
def test_weights_that_there_are_not_are_refused_with_a_sentence(alice_api, submission, weights):
    answer = alice_api.post("/api/v1/jobs/", {**submission, "initial_weights": weights}, format="json")
    assert answer.status_code == 400
    [sentence] = answer.json()["fields"]["initial_weights"]
    assert sentence.startswith(("Give the number", "Training 9 not found", "Checkpoint 9 not found"))


def test_suspending_resuming_and_cancelling(alice_api, alices_job):
    assert _post(alice_api, alices_job.pk, "suspend").json()["state"] == "SUSPENDED"
    assert _post(alice_api, alices_job.pk, "resume").json()["state"] == "PENDING"
    assert _post(alice_api, alices_job.pk, "cancel").json()["state"] == "CANCELLED"
    refused = _post(alice_api, alices_job.pk, "resume")
    assert (refused.status_code, set(refused.json())) == (409, {"error", "code", "fields"})
    events = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/events/").json()["results"]
    assert [event["new"] for event in events] == ["PENDING", "SUSPENDED", "PENDING", "CANCELLED"]


def test_cloning_submits_the_same_again(alice_api, alices_job):
    answer = _post(alice_api, alices_job.pk, "clone")
    assert answer.status_code == 201
    copy = answer.json()
    assert (copy["id"] != alices_job.pk, copy["name"], copy["max_slots"]) == (True, "T1", 4)


def test_changing_priority_and_most_slots(alice_api, alices_job):
    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", {"priority": 10_000, "max_slots": 2}, format="json")
    assert (answer.status_code, answer.json()["priority"], answer.json()["max_slots"]) == (200, 10_000, 2)


def test_a_change_is_made_as_a_whole_or_not_at_all(alice_api, alices_job):
    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", {"priority": 7000, "max_slots": 99}, format="json")
    assert answer.status_code == 400
    assert Job.objects.get().priority == 5000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "max_slots"),
        ({"max_slot": 2}, "did you mean max_slots?"),
        ({"state": "X"}, "Field 'state' is not known"),
    ],
)
def test_a_change_of_nothing_that_can_be_changed_is_refused(alice_api, alices_job, changes, words):
    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", changes, format="json")
    assert (answer.status_code, words in answer.json()["error"]) == (400, True)


def test_the_allocation_is_one_plain_list(alice_api, alices_job):
    at = alices_job.submitted_at
    AllocationPoint.objects.create(
        job=alices_job, at=at, slots=4, attempt=1, generation=2, reason_code="GRANTED", pause_ms=1.5
    )
    [point] = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/allocation/").json()
    assert (point["slots"], point["generation"], point["pause_ms"], point["reason"]["code"]) == (4, 2, 1.5, "GRANTED")


def _points(job: Job, number: int) -> None:
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name=name, step=step, epoch=0, value=1 / (step + 1), at=job.submitted_at)
        for name in ("accuracy", "loss")
        for step in range(number)
    )


def test_metrics_are_thinned_unless_all_are_asked_for(alice_api, alices_job):
    _points(alices_job, 1500)
    address = f"/api/v1/jobs/{alices_job.pk}/metrics/"
    thinned = alice_api.get(f"{address}?name=loss").json()["results"]
    assert len(thinned) <= 601
    assert thinned[-1]["step"] == 1499
    first = alice_api.get(f"{address}?name=loss&every=1").json()
    assert len(first["results"]) == 1000
    second = alice_api.get(first["next"]).json()
    assert [point["step"] for point in first["results"] + second["results"]] == list(range(1500))
    assert second["next"] is None


def test_metrics_of_all_names(alice_api, alices_job):
    _points(alices_job, 2)
    page = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/metrics/").json()
    assert [(point["name"], point["step"]) for point in page["results"]] == [
        ("accuracy", 0),
        ("accuracy", 1),
        ("loss", 0),
        ("loss", 1),
    ]


def test_a_figure_that_is_no_number_is_null(alice_api, alices_job):
    set_job(alices_job, final_metrics={"loss": None}, progress=None)
    MetricPoint.objects.create(job=alices_job, name="loss", step=0, epoch=0, value=math.nan, at=alices_job.submitted_at)
    answer = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/metrics/")
    assert "NaN" not in answer.content.decode()
    assert answer.json()["results"][0]["value"] is None


def test_registering_over_rest_answers_what_was_registered(alice_api, home):
    (home / "models/broken").mkdir()
    (home / "models/broken/main.py").write_text("def broken(:\n")
    answer = alice_api.post(
        "/api/v1/models/", {"name": "m", "path": "broken", "entry_point": "main.py"}, format="json"
    ).json()
    assert answer["latest"]["entry_point"] == "main.py"
    assert "not valid Python" in answer["warning"]
    assert alice_api.get("/api/v1/models/m/versions/").json()["results"][0]["number"] == 1


def test_uploading_over_rest(alice_api, home):
    (home / "train.py").write_text("x = 1\n")
    with (home / "train.py").open("rb") as script:
        answer = alice_api.post(
            "/api/v1/models/",
            {"name": "m", "file": script, "entry_point": "train.py", "parameters": '{"epochs": 3}'},
            format="multipart",
        )
    assert answer.status_code == 201
    assert answer.json()["latest"]["parameters"] == {"epochs": 3}


def test_each_of_many_that_wait_has_its_place_in_list_page_and_api(alice, alice_api, alice_client, alices_job):
    """However many wait: as many queries as for few, and nobody is left out."""
    same = {name: getattr(alices_job, name) for name in ("owner", "instance_group", "model", "dataset")}
    jobs = JobFactory.create_batch(230, **same, priority=4000)
    last = jobs[-1]
    Scheduler(threading.Event()).cycle()

    listed = alice_api.get("/api/v1/jobs/?sort=oldest&page_size=100").json()["results"]
    assert None not in [job["queue_position"] for job in listed if job["state"] == "PENDING"]
    job = alice_api.get(f"/api/v1/jobs/{last.pk}/").json()
    waiting = Job.objects.filter(state="PENDING").count()
    assert (job["queue_position"], job["expected_start"]) == (waiting, None), "nobody knows how long the others take"
    page = html_of(alice_client.get(f"/jobs/{last.pk}/"))
    assert f"It is number {waiting} of {waiting} in the queue. Its start cannot be predicted yet" in page
    assert f'class="place">{waiting}</td>' in html_of(alice_client.get("/jobs/"))
