"""Replays in the REST API and on their page: administrators see all, others their groups and their own trainings."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.messages import message
from jobs.models import InstanceGroup, Job
from replay.models import Replay
from tests.factories import InstanceGroupFactory, JobFactory, UserFactory

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FIGURES = {
    "jobs": 1, "unfinished": 0, "average": 600.0, "median": 600.0, "p99": 600.0, "longest_wait": 5.0, "gpu_hours": 1.0,
    "idle_gpu_hours": None, "worst_slowdown": 1.0,
}  # fmt: skip

pytestmark = pytest.mark.django_db


def in_group(group: InstanceGroup, owner: User) -> Job:
    job: Job = JobFactory(instance_group=group, owner=owner, name=f"of-{owner.username}", submitted_at=START)
    return job


@pytest.fixture
def alice() -> User:
    alice: User = UserFactory(username="alice")
    return alice


@pytest.fixture
def jobs(alice: User) -> list[Job]:
    """Return a job of Alice, one of another user in her group, and one in a group that she may not use."""
    bob = UserFactory(username="bob")
    hers, closed = InstanceGroupFactory(name="hers"), InstanceGroupFactory(name="closed")
    closed.members.add(bob)
    return [in_group(hers, alice), in_group(hers, bob), in_group(closed, bob)]


@pytest.fixture
def replay(jobs: list[Job]) -> Replay:
    part = {"counted": 1, "recorded": FIGURES, "same": [FIGURES], "other": [{**FIGURES, "average": 300.0}]}
    at, fixed = START.timestamp(), message("fixed", target=2, capacity=4, max_slots=2, missing=0)
    play = {
        "held": [[at, job.pk, 2] for job in jobs],
        "notes": [*([at, job.pk, 2, fixed] for job in jobs), [at + 600, jobs[0].pk, 0, None]],
    }
    whole = {"trainings": 3, "unfinished": 0, "withdrawn": 0, "unmeasured": 0, "gpus": 4}
    result = {
        **whole,
        **{name: part[name] for name in ("counted", "same", "other")},
        "recorded": {**FIGURES, "idle_gpu_hours": 2.0},
        "same": [{**FIGURES, "idle_gpu_hours": 2.0}],
        "other": [{**FIGURES, "idle_gpu_hours": 2.0}],
        "groups": {"hers": part, "closed": part},
        "errors": {"average": 0.0, "gpus": 0.0, "per_job": 0.0},
        "is_good": True,
        "is_too_large": False,
        "series": {"recorded": [], "same": [], "other": []},
        "cpu_seconds": 1.0,
    }
    rules = {"hers": {"policy": "fifo"}, "closed": {"quota": 7}}
    return Replay.objects.create(
        owner=UserFactory(is_staff=True), created_at=START, start=START, end=START + timedelta(hours=1),
        alternative={"groups": rules}, state=Replay.State.DONE, progress=1, result=result,
        jobs=[[job.pk, True, True, 600.0, 5.0, 600.0, 600.0, 5.0, 300.0, 300.0, 5.0] for job in jobs],
        moments=dict.fromkeys(("recorded", "same", "other"), play),
    )  # fmt: skip


@pytest.fixture
def hers(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


def get_json(client: Client, replay: Replay, rest: str = "") -> Any:
    answer = client.get(f"/api/v1/replays/{replay.pk}/{rest}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_member_sees_figures_of_the_own_groups_alone(hers: Client, replay: Replay) -> None:
    body = get_json(hers, replay)
    assert body["alternative"] == {"groups": {"hers": {"policy": "fifo"}}}
    assert body["result"].keys() == {"gpus", "groups", "errors", "is_good", "is_too_large", "cpu_seconds"}
    assert body["result"]["groups"].keys() == {"hers"}
    assert body["text"].startswith("hers: With hers: ")
    assert "closed" not in body["text"]
    [row] = hers.get("/api/v1/replays/").json()["results"]
    assert "closed" not in row["alternative"]["groups"]


def test_an_administrator_sees_all(admin_client: Client, replay: Replay, jobs: list[Job]) -> None:
    body = get_json(admin_client, replay)
    assert body["alternative"]["groups"].keys() == {"hers", "closed"} == body["result"]["groups"].keys()
    assert body["result"]["trainings"] == 3
    moments = get_json(admin_client, replay, "moment/?at=2026-03-01T12:05:00Z&play=other")
    assert [moment["job"] for moment in moments] == [job.pk for job in jobs]
    assert b"".join(admin_client.get(f"/api/v1/replays/{replay.pk}/jobs.csv")).count(b"of-") == 3


def test_a_moment_has_the_gpus_of_each_training_and_the_reasons(hers: Client, replay: Replay, jobs: list[Job]) -> None:
    own, others = get_json(hers, replay, "moment/?at=2026-03-01T12:05:00Z&play=other")
    why = "2 of 4 GPUs: it runs on exactly 2."
    assert own == {"job": jobs[0].pk, "recorded": 2, "replayed": 2, "target": 2, "text": why}
    assert others == {"job": None, "recorded": 2, "replayed": 2, "target": 2, "text": ""}
    assert [moment["job"] for moment in get_json(hers, replay, "moment/?at=2026-03-01T12:20:00Z")] == [None]


def test_the_file_hides_id_and_name_of_other_users_trainings(hers: Client, replay: Replay, jobs: list[Job]) -> None:
    _, own, others = b"".join(hers.get(f"/api/v1/replays/{replay.pk}/jobs.csv")).decode().splitlines()
    assert own.startswith(f"{jobs[0].pk},of-alice,")
    assert others.startswith(",,")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "at"),
        ("?at=tomorrow", "at"),
        ("?at=2026-03-02T12:00:00Z", "at"),
        ("?at=2026-03-01T12:00:00Z&play=x", "play"),
    ],
)
def test_invalid_moments_are_refused(hers: Client, replay: Replay, query: str, field: str) -> None:
    answer = hers.get(f"/api/v1/replays/{replay.pk}/moment/{query}")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])


def test_an_error_explains_missing_moments(hers: Client, replay: Replay) -> None:
    Replay.objects.update(moments={})
    answer = hers.get(f"/api/v1/replays/{replay.pk}/moment/?at=2026-03-01T12:00:00Z")
    assert answer.status_code == 400
    assert "too many changes" in answer.json()["error"]


def test_the_page_of_a_member(hers: Client, replay: Replay, jobs: list[Job]) -> None:
    page = hers.get(f"/what-if/{replay.pk}/?at=2026-03-01T12:05:00Z&play=other").content.decode()
    assert "of-alice" in page
    assert "of-bob" not in page
    assert "closed" not in page
    assert page.count("another user&#x27;s training") + page.count("another user's training") == 2
    assert "it runs on exactly 2" in page
    assert "Remove replay" not in page
    listed = hers.get("/what-if/").content.decode()
    assert "Replay a period" not in listed
    assert "hers: With hers" in listed
    assert hers.get(f"/what-if/{replay.pk}/?at=x").status_code == 400
    assert hers.get(f"/what-if/{replay.pk}/?at=2026-03-02T12:05:00Z&play=other").status_code == 400


def test_the_form_accepts_times_in_any_zone(admin_client: Client, jobs: list[Job]) -> None:
    given = {"window": "own", "start": "2026-03-01T13:00:00.000+02:00", "end": "2026-03-01T12:30"}
    assert admin_client.post("/what-if/", given).status_code == 302
    created = Replay.objects.get()
    assert (created.start, created.end) == (START - timedelta(hours=1), START + timedelta(minutes=30))
