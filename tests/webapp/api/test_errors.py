"""Whatever is sent, the answer is a sentence in one shape: never a 5xx, never half a row."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import resolve
from rest_framework.test import APIClient

from alerts.actions import add_channel
from alerts.models import Channel
from datasets.models import Dataset
from jobs.models import InstanceGroup, Job
from models_registry.models import ModelTemplate, RegisteredModel
from tests.factories import JobFactory
from tests.sitemap import api_addresses
from workers.join_tokens import create_join_token
from workers.models import ResourceGroup

pytestmark = pytest.mark.django_db

WRITES = {
    "/api/v1/datasets/": [
        *("name", "kind", "path", "description", "file"),
        *("training", "validation", "testing", "upload"),
    ],
    "/api/v1/uploads/": ["name", "size_bytes"],
    "/api/v1/join-tokens/": ["hosts", "hours"],
    "/api/v1/join/": ["token", "host"],
    "/api/v1/templates/": ["name", "framework", "path", "entry_point", "description", "file"],
    "/api/v1/job-filters/": ["name", "parameters"],
    "/api/v1/alerts/channels/": ["name", "kind", "address"],
    "/api/v1/alerts/rules/": ["channel", "kind", "group", "minutes"],
    "/api/v1/models/": [
        "name",
        "template",
        "settings",
        "framework",
        "path",
        "entry_point",
        "engine",
        "dataset",
        "parameters",
        "compat",
        "description",
        "file",
        "upload",
    ],
    "/api/v1/jobs/": [
        "name",
        "model",
        "dataset",
        "instance_group",
        "min_slots",
        "max_slots",
        "priority",
        "parameters",
        "arguments",
        "exactness",
        "virtual_ranks",
        "checkpoint",
        "seed",
        "effective_batch_size",
    ],
    "/api/v1/resource-groups/": ["name", "slot_rule", "kind", "selection", "description", "requirement", "hosts"],
    "/api/v1/instance-groups/": [
        *("name", "template", "deploy", "parameters", "members", "admins", "description"),
        *("resource_group", "policy", "aim", "preemption", "reclaim_grace_seconds", "minimum_run_seconds"),
        *("idle_after_seconds", "idle_grace_seconds", "idle_reclaims", "least_isolation"),
        *("quota", "weight", "borrows", "lends", "default_priority", "lowest_priority", "highest_priority"),
        *("execution_user", "deployment_directory"),
    ],
    "/api/v1/secrets/": ["name", "value", "instance_group", "is_file"],
    "/api/v1/environments/": ["name", "source", "lock", "groups", "default_of", "notes"],
    "/api/v1/gpu-prices/": ["gpu_model", "valid_from", "per_hour"],
    "/api/v1/replays/": ["start", "end", "groups", "gpus", "restart_seconds"],
    "/api/v1/studies/": [
        *("name", "model", "model_version", "dataset", "instance_group", "space", "metric", "goal", "value_of"),
        *("sampler", "pruner", "seed", "trials", "minutes", "gpu_hours", "at_once", "parameters", "arguments"),
        *("max_slots", "priority"),
    ],
    "/api/v1/reports/": ["title", "readers"],
    "/api/v1/users/": ["username", "role"],
    "/api/v1/device/": ["machine", "scope"],
    "/api/v1/scripts/": ["path", "file", "entry_point"],
}

#: JSON texts, so that every value that a client can send is possible.
BAD_VALUES = [
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e400",
    "1" + "0" * 30,
    '""',
    '"   "',
    r'"a\u0000b"',
    r'"\ud800"',
    r'"\u202e"',
    '"../../etc/passwd"',
    '"/etc/passwd"',
    json.dumps("x" * 300),
    json.dumps("x" * 20_000),
    "[]",
    "{}",
    "[[[]]]",
    r'{"\u0000": 1}',
    r'{"a": "\ud800"}',
    '{"a": {"b": [1]}}',
]


@pytest.fixture
def api(carol, request) -> APIClient:
    if "replays" in request.node.name:
        JobFactory(submitted_at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    client = APIClient()
    client.force_login(carol)
    return client


def _good(address: str, submission: dict[str, Any], home) -> dict[str, Any]:
    if address == "/api/v1/join/":
        return {"token": create_join_token("carol")[0], "host": "gpu-9"}
    channel = {"name": "new", "kind": "webhook", "address": "https://example.org/"}
    if address == "/api/v1/alerts/rules/":
        channels = Channel.objects.filter(name="rules")
        made = channels.first() or add_channel(User.objects.get(username="carol"), **{**channel, "name": "rules"}).row
        return {"channel": made.pk, "kind": "training_failed"}
    return {
        "/api/v1/alerts/channels/": channel,
        "/api/v1/datasets/": {"name": "new", "kind": "any", "path": str(home / "data/digits")},
        "/api/v1/uploads/": {"name": "new.zip", "size_bytes": 10},
        "/api/v1/join-tokens/": {"hosts": 1},
        "/api/v1/templates/": {"name": "new", "path": str(home / "models/cnn")},
        "/api/v1/job-filters/": {"name": "new", "parameters": "state=FAILED"},
        "/api/v1/models/": {"name": "new", "path": str(home / "models/cnn"), "entry_point": "main.py"},
        "/api/v1/jobs/": submission,
        "/api/v1/resource-groups/": {"name": "new"},
        "/api/v1/instance-groups/": {"name": "new", "resource_group": "ComputeHostsGPU"},
        "/api/v1/secrets/": {"name": "NEW", "value": "a value of some length"},
        "/api/v1/environments/": {"name": "new", "source": "timm>=1.0"},
        "/api/v1/gpu-prices/": {"gpu_model": "NVIDIA H200", "valid_from": "2026-01-01", "per_hour": "2.50"},
        "/api/v1/replays/": {"start": "2026-03-01T00:00:00Z", "end": "2026-03-02T00:00:00Z"},
        "/api/v1/studies/": {
            **{name: submission[name] for name in ("name", "model", "dataset", "instance_group")},
            "space": {"epochs": [1, 2]},
            "metric": "loss",
        },
        "/api/v1/reports/": {"title": "Two learning rates"},
        "/api/v1/users/": {"username": "erin"},
        "/api/v1/device/": {"machine": "erin's laptop"},
        "/api/v1/scripts/": {"path": str(home / "models/cnn"), "entry_point": "main.py"},
    }[address]


def _is_error(answer) -> None:
    asked = answer.request["REQUEST_METHOD"], answer.request["PATH_INFO"]
    assert 400 <= answer.status_code < 500, (*asked, answer.content)
    body = answer.json()
    assert set(body) == {"error", "code", "fields"}
    assert isinstance(body["error"], str)
    assert body["error"]
    assert all(isinstance(sentence, str) for sentences in body["fields"].values() for sentence in sentences)


def _rows() -> list[int]:
    return [
        model.objects.count() for model in (Dataset, ModelTemplate, RegisteredModel, Job, ResourceGroup, InstanceGroup)
    ]


@pytest.mark.parametrize("address", WRITES)
def test_the_good_request_is_accepted(api, submission, home, address):
    answer = api.post(address, _good(address, submission, home), format="json")
    assert answer.status_code == (202 if address == "/api/v1/replays/" else 201)


#: Every field gets every third value, and the next field the next ones; all values in all fields are `long`.
every_third = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.long)])


@every_third
@pytest.mark.parametrize("address", WRITES)
def test_a_bad_value_in_any_field_is_answered_with_a_sentence(api, submission, home, address, stride):
    before = _rows()
    for number, field in enumerate(WRITES[address]):
        for value in BAD_VALUES[number % stride :: stride]:
            with transaction.atomic():
                good = _good(address, submission, home) | {field: "PLACEHOLDER"}
                text = json.dumps(good).replace('"PLACEHOLDER"', value)
                answer = api.generic("POST", address, text, content_type="application/json")
                if answer.status_code not in (201, 202):
                    _is_error(answer)
                    assert _rows() == before, (field, value)
                transaction.set_rollback(True)


@pytest.mark.parametrize("address", WRITES)
def test_a_body_that_is_no_object_is_refused(api, group, address):
    for body in ("", "{", "null", "1", '"text"', "[]", "[1]", "NaN", '{"name": NaN}', "[" * 100_000, "\ud800", "{}"):
        data = body.encode("utf-8", "surrogatepass")
        _is_error(api.generic("POST", address, data, content_type="application/json"))


def test_a_body_that_is_too_large_is_refused(api, group):
    body = json.dumps({"name": "x" * 3 * 1024**2})
    answer = api.generic("POST", "/api/v1/jobs/", body, content_type="application/json")
    _is_error(answer)
    assert "too large" in answer.json()["error"]


@pytest.mark.parametrize("address", api_addresses())
def test_other_methods_and_bodies_are_refused_in_the_same_shape(api, address):
    for method in ("put", "patch", "delete", "post"):
        answer = getattr(api, method)(address, "x", content_type="text/csv")
        if address == "/api/v1/me/token/" and method in {"delete", "post"}:
            assert answer.status_code in {201, 204}
        else:
            _is_error(answer)


@pytest.mark.parametrize(
    "address",
    [
        "/api/",
        "/api/v1/",
        "/api/v1/nothing/",
        "/api/v2/jobs/",
        "/api/v1/jobs/999999/",
        "/api/v1/jobs/" + "9" * 30 + "/",
        "/api/v1/jobs/" + "9" * 5000 + "/",
        "/api/v1/jobs/-1/",
        "/api/v1/jobs/T1/",
        "/api/v1/jobs/1/nothing/",
        "/api/v1/datasets/%00/",
        "/api/v1/datasets/%ff/",
        "/api/v1/models/%2e%2e%2fpasswd/",
        "/api/v1/hosts/nobody/",
        "/api/v1/resource-groups/nobody/",
        "/api/v1/instance-groups/nobody/",
        "/api/v1/environments/nobody/",
    ],
)
def test_what_is_not_there_is_a_404_in_json(api, address):
    answer = api.get(address)
    _is_error(answer)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "query",
    [
        "jobs/?state=%00",
        "jobs/?search=%00",
        "jobs/?search=%ed%a0%80",
        "jobs/?page_size=-1",
        "jobs/?page_size=x",
        "datasets/?after=nonsense",
        "datasets/?before=%ed%a0%80~1",
        "slots/?after=1~99999999999999999999",
        "hosts/?page_size=0",
        "jobs/{id}/logs/?after=-1",
        "jobs/{id}/logs/?after=x",
        "jobs/{id}/logs/?after=99999999999999999999999",
        "jobs/{id}/logs/?stream=../stdout",
        "jobs/{id}/logs/?rank=../../..",
        "jobs/{id}/logs/?rank=%00",
        "jobs/{id}/logs/?rank=99999999999999999999",
        "jobs/{id}/metrics/?every=0",
        "jobs/{id}/metrics/?every=x",
        "jobs/{id}/metrics/?name=%00",
        "jobs/{id}/metrics/?offset=99999999999999999999999",
        "jobs/{id}/events/?limit=-1",
    ],
)
def test_odd_queries_never_break_anything(api, alices_job, query):
    answer = api.get("/api/v1/" + query.format(id=alices_job.pk))
    if answer.status_code != 200:
        _is_error(answer)


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 0},
        {"priority": 10_001},
        {"priority": "high"},
        {"priority": None},
        {"priority": 10**30},
        {"max_slots": 0},
        {"max_slots": 5},
        {"max_slots": -1},
        {"max_slots": 2.5},
        {"priority": 7000, "max_slots": 99},
    ],
)
def test_a_bad_change_changes_nothing(api, alices_job, changes):
    _is_error(api.patch(f"/api/v1/jobs/{alices_job.pk}/", changes, format="json"))
    job = Job.objects.get()
    assert (job.priority, job.max_slots) == (5000, 4)


def test_all_mistakes_of_a_submission_are_said_at_once(api, submission):
    submission |= {"model": "none", "dataset": "none", "priority": 0, "max_slots": 99}
    answer = api.post("/api/v1/jobs/", submission, format="json")
    assert answer.status_code == 400
    assert set(answer.json()["fields"]) == {"model", "dataset", "priority", "max_slots"}


def test_every_address_that_takes_a_body_is_in_the_table():
    posts = {address for address in api_addresses() if _takes_post(address)}
    commands = {address for address in posts if address.replace("/alerts/", "/").count("/") > 4}
    assert posts - commands == set(WRITES)
    assert {address.split("/")[-2] for address in commands} == {
        "adaptdl",
        "bulk",
        "cancel",
        "suspend",
        "resume",
        "clone",
        "preview",
        "undo",
        "wait",
        "keep-gpus",
        "token",
        "try",
        "tokens",
        "password",
        "reset-password",
        "activate",
        "build",
        "deactivate",
        "rebuild",
        "drain",
        "restore",
        "return",
        "take-again",
        "validations",
        "check",
        "start",
        "stop",
        "test",
        "pause",
        "enqueue",
        "seeds",
        "stacks",
        "flame",
        "trace",
        "notes",
        "tags",
        "version",
        "blocks",
        "links",
    }


def _takes_post(address: str) -> bool:
    return hasattr(resolve(address).func.cls, "post")


def test_a_misspelt_field_is_refused_instead_of_left_out(alice_api, submission):
    answer = alice_api.post("/api/v1/jobs/", {**submission, "max_slot": 2, "gpu_kind": "a"}, format="json")

    assert answer.status_code == 400
    assert answer.json()["fields"]["max_slot"] == ["Field 'max_slot' is not known: did you mean max_slots?"]
    assert "there are name, model, model_version, dataset" in answer.json()["fields"]["gpu_kind"][0]
    assert not Job.objects.exists()


def test_a_change_of_something_else_is_refused(alice_api, alices_job):
    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", {"priority": 7000, "max_slot": 2}, format="json")

    assert answer.json()["fields"] == {"max_slot": ["Field 'max_slot' is not known: did you mean max_slots?"]}
    alices_job.refresh_from_db()
    assert alices_job.priority == 5000
