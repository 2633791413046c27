"""Stopping many jobs, giving them a priority, and taking the list along as CSV: by whom, and what is said."""

import csv
import io
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from core.downloads import csv_chunks, safe_cell
from insights.pages.questions import last_checkpoints, stop_question
from jobs.actions.bulk import MAX_JOBS
from jobs.models import Checkpoint, Job, SlotClaim
from jobs.states import JobState
from tests.factories import JobFactory, set_job
from tests.scene import Scene
from workers.models import Host


def api_of(name: str) -> APIClient:
    api = APIClient()
    api.force_login(User.objects.get(username=name))
    return api


def bulk(api: APIClient, **values: Any) -> Any:
    return api.post("/api/v1/jobs/bulk/", values, format="json")


def states(*jobs: Job) -> list[str]:
    return [Job.objects.get(pk=job.pk).state for job in jobs]


def test_stops_what_can_be_stopped_and_says_what_cannot(scene: Scene) -> None:
    bobs = Job.objects.get(name="bobs-secret")
    jobs = [scene.first.pk, scene.waiting.pk, scene.done.pk, bobs.pk, 999_999]

    answer = bulk(api_of("alice"), action="cancel", jobs=jobs).json()

    assert answer["done"] == [scene.first.pk, scene.waiting.pk]
    assert states(scene.first, scene.waiting, scene.done, bobs) == ["CANCELLING", "CANCELLED", "SUCCEEDED", "PENDING"]
    done, others, unknown = answer["refused"]
    assert (done["job"], done["name"], done["code"]) == (scene.done.pk, "digits-baseline", "stale_job")
    for refusal in (others, unknown):
        assert (refusal["name"], refusal["code"]) == ("", "not_found")


def test_many_that_stop_raise_the_revision_of_their_host_once(scene: Scene) -> None:
    host = SlotClaim.objects.filter(job=scene.first).earliest("pk").slot.host
    waiting = JobFactory.create_batch(5, owner=scene.alice, state=JobState.PENDING)
    jobs = [scene.first.pk, scene.second.pk, *(job.pk for job in waiting)]

    assert bulk(api_of("alice"), action="cancel", jobs=jobs).json()["done"] == jobs

    after = Host.objects.get(pk=host.pk)
    assert after.desired_revision == host.desired_revision + 1


def test_gives_many_jobs_a_priority(scene: Scene) -> None:
    answer = bulk(api_of("alice"), action="priority", priority=7500, jobs=[scene.first.pk, scene.failed.pk]).json()

    assert answer["done"] == [scene.first.pk]
    assert [refusal["job"] for refusal in answer["refused"]] == [scene.failed.pk]
    assert Job.objects.get(pk=scene.first.pk).priority == 7500


def test_a_priority_that_many_were_given_is_undone_by_job(scene: Scene, carol: User) -> None:
    alice, jobs = api_of("alice"), [scene.first.pk, scene.second.pk, scene.waiting.pk]
    changes = bulk(alice, action="priority", priority=7500, jobs=jobs).json()["changes"]
    assert [change["job"] for change in changes] == jobs
    bulk(api_of("carol"), action="priority", priority=100, jobs=[scene.second.pk])

    answer = bulk(alice, action="undo", changes=changes).json()

    assert answer["done"] == [scene.first.pk, scene.waiting.pk]
    [refusal] = answer["refused"]
    assert (refusal["job"], refusal["name"], refusal["code"]) == (scene.second.pk, "T2 digits-cnn", "stale_job")
    assert "by carol, to 100" in refusal["error"]
    priorities = [Job.objects.get(pk=job).priority for job in jobs]
    assert priorities == [5000, 100, 3000]


def test_what_had_the_priority_already_is_nothing_to_undo(scene: Scene) -> None:
    answer = bulk(api_of("alice"), action="priority", priority=3000, jobs=[scene.waiting.pk]).json()

    assert (answer["done"], answer["changes"]) == ([scene.waiting.pk], [])


def test_a_stranger_undoes_nothing(scene: Scene) -> None:
    changes = bulk(api_of("alice"), action="priority", priority=7500, jobs=[scene.first.pk]).json()["changes"]

    answer = bulk(api_of("bob"), action="undo", changes=changes).json()

    assert (answer["done"], answer["refused"][0]["code"]) == ([], "not_found")
    assert Job.objects.get(pk=scene.first.pk).priority == 7500


def test_an_administrator_may_and_a_stranger_may_not(scene: Scene, carol: User) -> None:
    assert bulk(api_of("bob"), action="cancel", jobs=[scene.first.pk]).json()["done"] == []
    assert states(scene.first) == [JobState.RUNNING]
    assert bulk(APIClient(), action="cancel", jobs=[scene.first.pk]).status_code == 401
    assert bulk(api_of("carol"), action="cancel", jobs=[scene.first.pk]).json()["done"] == [scene.first.pk]
    assert states(scene.first) == [JobState.CANCELLING]


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "cancel", "jobs": []},
        {"action": "cancel", "jobs": list(range(1, MAX_JOBS + 2))},
        {"action": "cancel", "jobs": ["T1"]},
        {"action": "cancel", "jobs": [10**30]},
        {"action": "cancel"},
        {"action": "delete", "jobs": [1]},
        {"action": "priority", "jobs": [1]},
        {"action": "priority", "jobs": [1], "priority": 0},
        {"action": "undo"},
        {"action": "undo", "changes": [{"job": 1}]},
        {"action": "undo", "changes": [{"job": 1, "events": []}]},
        {"action": "undo", "changes": [{"job": 1, "events": [10**12]}]},
    ],
)
def test_a_desired_state_that_does_not_fit_changes_nothing(scene: Scene, wrong: dict[str, Any]) -> None:
    before = list(Job.objects.order_by("pk").values())

    answer = bulk(api_of("alice"), **wrong)

    assert answer.status_code == 400
    assert answer.json()["error"]
    assert list(Job.objects.order_by("pk").values()) == before


def test_the_question_names_what_is_lost(scene: Scene, alices: Client) -> None:
    Checkpoint.objects.create(
        job=scene.first, attempt=1, step=800, epoch=1, path="p", size_bytes=1, sha256="0",
        created_at=scene.first.submitted_at,
    )  # fmt: skip
    jobs = [scene.first, scene.second, scene.waiting, scene.done, Job.objects.get(name="bobs-secret")]

    question = alices.get(f"/jobs/stop-question.json?jobs={','.join(str(job.pk) for job in jobs)},x,1").json()

    assert question["title"] == "Stop 3 trainings?"
    assert "“T1 digits-cnn” at step 820 (20 steps lost since its last checkpoint)" in question["lost"]
    assert "“T2 digits-cnn” at step 400 (400 steps lost because it has no checkpoint)" in question["lost"]
    assert "“digits-wide” before its first step" in question["lost"]
    assert question["jobs"] == [job.pk for job in (scene.waiting, scene.second, scene.first)]
    assert question["hint"].startswith("1 chosen training has already ended")
    assert "bobs-secret" not in str(question)


def test_a_question_about_all_that_fit_is_about_other_pages_too(scene: Scene, alices: Client) -> None:
    jobs = JobFactory.create_batch(
        60, owner=scene.alice, name="sweep", instance_group=scene.first.instance_group, state=JobState.PENDING
    )
    JobFactory(owner=User.objects.get(username="bob"), name="sweep of another")

    question = alices.get("/jobs/stop-question.json?matching=1&search=sweep").json()

    assert question["title"] == "Stop 60 trainings?"
    assert set(question["jobs"]) == {job.pk for job in jobs}


def test_more_than_one_request_takes_are_refused_beforehand(
    scene: Scene, alices: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("insights.pages.questions.MAX_JOBS", 2)

    answer = alices.get("/jobs/stop-question.json?matching=1&state=active")

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == ["matching"]


def test_the_question_says_what_others_get(scene: Scene, alices: Client) -> None:
    jobs = f"jobs={scene.first.pk},{scene.second.pk}"
    stop = alices.get(f"/jobs/stop-question.json?{jobs}").json()
    assert re.search(r"\d training", stop["hint"]), stop

    question = alices.get(f"/jobs/priority-question.json?{jobs},{scene.done.pk}&priority=10000").json()

    assert question["title"] == "Set the priority of 1 training to 10000?"
    assert question["jobs"] == [scene.first.pk]
    assert question["lost"].startswith("Current priority: 5000. ")
    assert alices.get(f"/jobs/priority-question.json?{jobs}&priority=0").status_code == 400
    assert alices.get(f"/jobs/priority-question.json?{jobs}&priority=10001").status_code == 400
    nothing = alices.get(f"/jobs/priority-question.json?jobs={scene.done.pk}&priority=5").json()
    assert nothing["jobs"] == []
    assert Job.objects.get(pk=scene.first.pk).priority == 5000


def test_the_question_about_many_names_some_and_counts_the_rest(scene: Scene) -> None:
    jobs = JobFactory.create_batch(9, owner=scene.alice)
    with CaptureQueriesContext(connection) as queries:
        question = stop_question(jobs, last_checkpoints(jobs))
    assert len(queries) == 1
    assert "and 3 more" in question.lost
    assert question.yes == "Stop 9 trainings"
    assert stop_question([scene.done], {}).jobs == []


# --- CSV ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", " =", "\n@"])
def test_text_that_a_spreadsheet_would_run_is_text(sign: str) -> None:
    assert safe_cell(f"{sign}HYPERLINK(1)") == f"'{sign}HYPERLINK(1)"


def test_numbers_and_usual_text_stay() -> None:
    assert [safe_cell(value) for value in (-1.5, None, "lr=-1", "", "a@b")] == [-1.5, None, "lr=-1", "", "a@b"]


def test_a_file_comes_in_pieces() -> None:
    taken = []
    chunks = csv_chunks(["n"], ([taken.append(n) or n] for n in range(1000)))

    assert next(chunks).startswith(b"n\r\n0\r\n1\r\n")
    assert len(taken) < 300
    assert b"".join(chunks).endswith(b"999\r\n")


def lines(client: Client | APIClient, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"/api/v1/jobs/export/{query}")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer["Content-Disposition"]
    return list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode(), newline="")))


def test_the_filtered_list_can_be_taken_along(scene: Scene) -> None:
    set_job(scene.failed, name='=cmd|"/c calc"!A1', error={"message": "-1+2"})

    [failed] = lines(api_of("alice"), "?state=FAILED")

    assert failed["name"] == """'=cmd|"/c calc"!A1"""
    assert failed["error"] == "'-1+2"
    assert (failed["id"], failed["owner"], failed["model"]) == (str(scene.failed.pk), "alice", "digits-cnn")


def test_everybody_takes_along_what_is_theirs(scene: Scene, carol: User) -> None:
    assert {line["owner"] for line in lines(api_of("alice"))} == {"alice"}
    assert [line["name"] for line in lines(api_of("bob"))] == ["bobs-secret"]
    assert {line["owner"] for line in lines(api_of("carol"))} == {"alice", "bob"}
    assert APIClient().get("/api/v1/jobs/export/").status_code == 401
    assert api_of("alice").get("/api/v1/jobs/export/?state=NONE").status_code == 400


def test_more_jobs_cost_no_more_questions(scene: Scene) -> None:
    def questions() -> int:
        with CaptureQueriesContext(connection) as queries:
            lines(api_of("alice"))
        return len(queries)

    few = questions()
    JobFactory.create_batch(20, owner=scene.alice)
    assert questions() == few
