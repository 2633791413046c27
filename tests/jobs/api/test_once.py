"""A submission that is sent again with the same Idempotency-Key makes no second job."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from rest_framework.test import APIClient

from jobs.actions import idempotency as module
from jobs.actions.idempotency import once
from jobs.models import Job, SubmissionKey
from tests.factories import JobFactory
from tests.scene import Scene

pytestmark = pytest.mark.django_db

KEY = {"Idempotency-Key": "0123456789abcdef"}


@pytest.fixture
def asked(scene: Scene) -> dict[str, Any]:
    group = scene.first.instance_group.name
    return {"name": "once", "model": "digits-cnn", "dataset": "digits", "instance_group": group, "max_slots": 2}


@pytest.fixture
def api(scene: Scene) -> APIClient:
    client = APIClient()
    client.force_authenticate(scene.alice)
    return client


def test_the_same_request_makes_one_job(api: APIClient, asked: dict[str, Any]) -> None:
    first, again = (api.post("/api/v1/jobs/", asked, "json", headers=KEY) for _ in range(2))

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (None, "true")
    assert Job.objects.filter(name="once").count() == 1


def test_without_a_key_each_makes_its_own(api: APIClient, asked: dict[str, Any]) -> None:
    for _ in range(2):
        assert api.post("/api/v1/jobs/", asked, "json").status_code == 201
    assert Job.objects.filter(name="once").count() == 2


def test_a_clone_is_made_once(api: APIClient, asked: dict[str, Any]) -> None:
    job = api.post("/api/v1/jobs/", asked, "json").json()["id"]
    copies = {api.post(f"/api/v1/jobs/{job}/clone/", headers=KEY).json()["id"] for _ in range(2)}
    assert len(copies) == 1


def test_a_key_is_for_one_request(api: APIClient, asked: dict[str, Any]) -> None:
    api.post("/api/v1/jobs/", asked, "json", headers=KEY)
    answer = api.post("/api/v1/jobs/", {**asked, "max_slots": 3}, "json", headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (409, "key_used")


def test_a_key_is_its_owners(api: APIClient, asked: dict[str, Any], carol_api: APIClient) -> None:
    mine, hers = (client.post("/api/v1/jobs/", asked, "json", headers=KEY).json()["id"] for client in (api, carol_api))
    assert mine != hers


@pytest.mark.parametrize("key", ["short", "x" * 129, "with blanks in it"])
def test_a_key_that_is_none(api: APIClient, asked: dict[str, Any], key: str) -> None:
    answer = api.post("/api/v1/jobs/", asked, "json", headers={"Idempotency-Key": key})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["Idempotency-Key"])


def test_who_comes_second_at_once_gets_the_first_ones(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked for the key before either stored it."""
    first = JobFactory(owner=alice)
    found = module._earlier

    def make(then: Any) -> Job:
        SubmissionKey.objects.create(owner=alice, key="k" * 8, digest=digest, job=first)
        raise IntegrityError("UNIQUE constraint failed")

    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # the digest of {}
    assert once(alice, "k" * 8, {}, make) == (first, False)
    assert found(alice, "k" * 8, digest) == first


def test_a_refused_submission_does_not_use_up_its_key(api: APIClient, asked: dict[str, Any]) -> None:
    assert api.post("/api/v1/jobs/", {**asked, "max_slots": 0}, "json", headers=KEY).status_code == 400
    assert api.post("/api/v1/jobs/", asked, "json", headers=KEY).status_code == 201
