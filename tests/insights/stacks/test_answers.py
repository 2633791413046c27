"""Stacks by REST and on the page: the request reaches the hosts, their answers are read, and bad ones are let be."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.protocol import HostStacks, ProcessStacks, RankStacks, to_json
from tidepool.stacks import stacks_path

from jobs.control.dispatch import build_sync
from jobs.files.job_folder import job_folder
from jobs.models import Job, JobRun, Rank
from tests.factories import JobFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def training(cluster: Cluster, submit: Submit) -> Job:
    """A training with 8 ranks on two hosts."""
    job = submit()
    cluster.turn(2)
    cluster.train(job)
    cluster.turn()
    job.refresh_from_db()
    assert job.ranks.count() == 8
    return job


def stack(code: Path, file: str, line: int, function: str) -> str:
    return f'Current thread 0x1 (most recent call first):\n  File "{code}/{file}", line {line} in {function}\n'


def answer(job: Job, place: str, number: int, text: str, **changes: Any) -> None:
    """Write what the shim of the host `place` would."""
    ranks = [
        RankStacks(rank.member_id, rank.slot, [ProcessStacks(rank.pid, "python", "answered", text)])
        for rank in job.ranks.filter(host=place)
    ]
    path = job_folder(job).attempt(job.run.attempt) / stacks_path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_json(HostStacks(number, place, 1.0, 0.1, ranks)) | changes))


def wanted(host: str, job: Job) -> int:
    [desired] = [each for each in build_sync(host).jobs if each.job == job.pk]
    return desired.stacks


def test_hosts_are_asked_and_their_answers_folded(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/stacks/"
    before = alice_api.get(address).json()
    assert (before["state"], before["number"], before["stalled"]) == ("none", 0, None)

    taking = alice_api.post(address)
    assert taking.status_code == 202
    assert (taking.json()["state"], taking.json()["missing_hosts"]) == ("taking", ["gpu-host-1", "gpu-host-2"])
    assert {wanted(host, training) for host in ("gpu-host-1", "gpu-host-2")} == {1}

    code = job_folder(training).code
    answer(training, "gpu-host-1", 1, stack(code, "train.py", 30, "main"))
    assert alice_api.get(address).json()["missing_hosts"] == ["gpu-host-2"]
    answer(training, "gpu-host-2", 1, stack(code, "dataset.py", 41, "load"))
    found = alice_api.get(address).json()
    assert (found["state"], found["requested_by"], len(found["processes"])) == ("taken", "alice", 8)
    assert [len(group["ranks"]) for group in found["groups"]] == [4, 4]
    assert "4 ranks (" in found["text"]
    assert found["text"].endswith("are in dataset.py line 41, in load.")
    assert found["processes"][0]["threads"] == [["train.py line 30, in main"]]


def test_two_who_ask_at_once_share_the_answer(training: Job, alice_api: APIClient, carol_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/stacks/"
    assert [api.post(address).json()["number"] for api in (alice_api, carol_api)] == [1, 1]
    JobRun.objects.filter(job=training).update(stacks_at=timezone.now() - timedelta(seconds=3))
    later = carol_api.post(address).json()
    assert (later["number"], later["requested_by"]) == (2, "carol")


def test_a_host_that_does_not_answer_is_named(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/stacks/"
    alice_api.post(address)
    answer(training, "gpu-host-1", 1, "")
    JobRun.objects.filter(job=training).update(stacks_at=timezone.now() - timedelta(seconds=7))
    found = alice_api.get(address).json()
    assert found["state"] == "taken"
    assert "gpu-host-2 has not answered: it is out of reach" in found["text"]


def test_hosts_that_do_not_answer_are_named(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/stacks/"
    alice_api.post(address)
    JobRun.objects.filter(job=training).update(stacks_at=timezone.now() - timedelta(seconds=7))
    text = alice_api.get(address).json()["text"]
    assert "gpu-host-1, gpu-host-2 have not answered: they are out of reach" in text


@pytest.mark.parametrize("content", ["", "\0", "[]", "[" * 100_000, '{"number": 1}', '{"number": "x"}', "\\ud800"])
def test_what_a_script_writes_in_its_place_is_no_answer(training: Job, alice_api: APIClient, content: str) -> None:
    alice_api.post(f"/api/v1/jobs/{training.pk}/stacks/")
    path = job_folder(training).attempt(1) / stacks_path("gpu-host-1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    answer(training, "gpu-host-2", 1, "", host="gpu-host-1")
    found = alice_api.get(f"/api/v1/jobs/{training.pk}/stacks/").json()
    assert (found["state"], found["processes"]) == ("taking", [])


def test_characters_that_no_text_has_are_replaced(training: Job, alice_api: APIClient) -> None:
    alice_api.post(f"/api/v1/jobs/{training.pk}/stacks/")
    answer(training, "gpu-host-1", 1, stack(job_folder(training).code, "\ud800.py", 1, "f"))
    found = alice_api.get(f"/api/v1/jobs/{training.pk}/stacks/").json()
    assert found["groups"][0]["stack"] == ["\N{REPLACEMENT CHARACTER}.py line 1, in f"]


def test_a_link_in_its_place_is_not_followed(training: Job, alice_api: APIClient, tmp_path: Path) -> None:
    alice_api.post(f"/api/v1/jobs/{training.pk}/stacks/")
    answer(training, "gpu-host-1", 1, "")
    path = job_folder(training).attempt(1) / stacks_path("gpu-host-1")
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert alice_api.get(f"/api/v1/jobs/{training.pk}/stacks/").json()["processes"] == []


def test_a_training_without_processes_is_refused(alice: User, alice_api: APIClient, cluster: Cluster) -> None:
    waiting = JobFactory(owner=alice)
    over = JobFactory(owner=alice, state="FAILED", finished_at=timezone.now())
    for job, words in ((waiting, "holds no GPU"), (over, "is over")):
        refused = alice_api.post(f"/api/v1/jobs/{job.pk}/stacks/")
        assert refused.status_code == 409
        assert words in refused.json()["error"]


def test_stacks_of_a_stall_remain(training: Job, alice_api: APIClient) -> None:
    text = stack(job_folder(training).code, "train.py", 12, "wait")
    error = {"kind": "Stalled", "message": "no step for 300 s", "traceback": text}
    Rank.objects.filter(job=training).update(exit={"code": None, "signal": 6, "error": error})
    stalled = alice_api.get(f"/api/v1/jobs/{training.pk}/stacks/").json()["stalled"]
    assert (stalled["attempt"], stalled["text"]) == (1, "All 8 ranks are in train.py line 12, in wait.")


def test_the_button_shows_what_came_of_it(training: Job, alice_client: Client) -> None:
    shown = alice_client.post(f"/jobs/{training.pk}/stacks/take/", headers={"HX-Request": "true"}).content.decode()
    assert "The processes write their stacks." in shown
    for host in ("gpu-host-1", "gpu-host-2"):
        answer(training, host, 1, stack(job_folder(training).code, "train.py", 30, "main"))
    part = alice_client.get(reverse("jobs:part", args=[training.pk, "stacks"])).content.decode()
    assert "All 8 ranks are in train.py line 30, in main." in part
    assert alice_client.post(f"/jobs/{training.pk}/stacks/take/").status_code == 302


def test_the_button_says_why_not(alice: User, alice_client: Client, cluster: Cluster) -> None:
    job = JobFactory(owner=alice)
    shown = alice_client.post(f"/jobs/{job.pk}/stacks/take/", headers={"HX-Request": "true"}).content.decode()
    assert "The training holds no GPU" in shown


def test_many_ranks_cost_no_more_queries(training: Job, alice_api: APIClient) -> None:
    alice_api.post(f"/api/v1/jobs/{training.pk}/stacks/")
    answer(training, "gpu-host-1", 1, "")
    with CaptureQueriesContext(connection) as queries:
        alice_api.get(f"/api/v1/jobs/{training.pk}/stacks/")
    assert len(queries) <= 9
