"""`/mlflow/`: who comes in, what passes, and what a user or the token of a training may do there."""

import json
import sys

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from accounts.tokens import create_token, make_token
from core.roles import VIEWERS
from jobs.states import JobState
from tests.factories import JobFactory, UserFactory, set_job
from tracking import token_reach
from tracking.access import token_of
from tracking.mirror import Mirror
from tracking.models import TrackedRun, UnsentCall
from tracking.proxy import TrackingProxy
from tracking.runs import ensure_run
from tracking.upstream import MlflowServer

pytestmark = pytest.mark.django_db(transaction=True)

API = "/mlflow/api/2.0/mlflow/"
FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"


async def below(scope, receive, send):
    """The site."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"site"})


@pytest.fixture
def site(mlflow):
    transport = httpx.ASGITransport(TrackingProxy(below, mlflow.transport))
    return httpx.AsyncClient(transport=transport, base_url="http://testserver")


@pytest.fixture
def alice():
    return UserFactory(username="alice")


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def of_user(user):
    return bearer(create_token(user))


def running(owner, mlflow):
    """A training in its first attempt, its run, and the header that its ranks send."""
    job = JobFactory(owner=owner)
    set_job(job, state=JobState.RUNNING, attempt=1)
    run = ensure_run(MlflowServer(mlflow.transport), job)
    return job, run, bearer(token_of(job.pk, 1))


aof_user, arunning, amake_token = sync_to_async(of_user), sync_to_async(running), sync_to_async(make_token)


async def test_other_addresses_are_the_sites(site):
    assert [(await site.get(path)).status_code for path in ("/", "/mlflowers/", "/api/v1/")] == [299] * 3


async def test_a_site_without_mlflow_has_no_such_address(site, settings):
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    assert (await site.get("/mlflow/")).status_code == 299


async def test_strangers_are_refused_or_sent_to_the_log_in(site, mlflow):
    refused = await site.get(f"{API}experiments/search")
    assert (refused.status_code, refused.json()["error_code"]) == (401, "UNAUTHENTICATED")
    page = await site.get("/mlflow/", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (302, "/login/?next=/mlflow/")
    assert (await site.get(f"{API}experiments/search", headers=bearer("tide_x"))).status_code == 401
    assert mlflow.calls == []


async def test_a_token_and_a_session_open_what_mlflow_gives_that_user(site, mlflow, alice):
    headers = {**await aof_user(alice), "X-Tidepool-User": "bob", "X-Tidepool-Admin": "1", "Cookie": "a=b"}
    assert (await site.get(f"{API}experiments/search", headers=headers)).status_code == 200
    passed = mlflow.headers[-1]
    assert (passed["x-tidepool-user"], passed["x-tidepool-admin"]) == ("alice", "0")
    assert not {"cookie", "authorization"} & set(passed)
    browser = Client()
    await sync_to_async(browser.force_login)(alice)
    cookie = {"Cookie": f"tidepool_session={browser.cookies['tidepool_session'].value}"}
    page = await site.get("/mlflow/", headers=cookie)
    assert page.status_code == 200
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert "set-cookie" not in page.headers
    foreign = {**cookie, "Origin": "http://elsewhere"}
    assert (await site.post(f"{API}experiments/create", headers=foreign, json={"name": "a"})).status_code == 403
    own = {**cookie, "Origin": "http://testserver"}
    assert (await site.post(f"{API}experiments/create", headers=own, json={"name": "a"})).status_code == 200


async def test_an_administrator_is_one_there(site, mlflow):
    admin = await sync_to_async(UserFactory)(is_staff=True)
    await site.get(f"{API}experiments/search", headers=await aof_user(admin))
    assert mlflow.headers[-1]["x-tidepool-admin"] == "1"


async def test_who_may_only_look_changes_nothing(site, mlflow, alice):
    viewer = await sync_to_async(UserFactory)()
    group, _ = await Group.objects.aget_or_create(name=VIEWERS)
    await viewer.groups.aadd(group)
    reader = await amake_token(alice, "reader", None, "read")
    for headers in (await aof_user(viewer), bearer(reader.text)):
        assert (await site.post(f"{API}runs/search", headers=headers, json={"filter": "= '0'"})).status_code == 200
        assert (await site.post(f"{API}experiments/create", headers=headers, json={"name": "a"})).status_code == 403
    assert mlflow.experiments == {}


async def test_closed_addresses_and_places_are_refused(site, mlflow, alice):
    headers = await aof_user(alice)
    assert (await site.post(f"{API}users/create", headers=headers, json={})).status_code == 404
    located = {"name": "a", "artifact_location": "/etc"}
    assert (await site.post(f"{API}experiments/create", headers=headers, json=located)).status_code == 403
    assert (await site.post(f"{API}experiments/create", headers=headers, content=b"[1]")).status_code == 400
    large = b'{"a": "' + b"x" * 17 * 1024**2 + b'"}'
    assert (await site.post(f"{API}runs/log-batch", headers=headers, content=large)).status_code == 413
    assert mlflow.calls == []


async def test_nobody_makes_an_experiment_below_another_users_name(site, mlflow, alice):
    bob = await sync_to_async(UserFactory)(username="bob")
    create, headers = f"{API}experiments/create", await aof_user(alice)
    refused = await site.post(create, headers=headers, json={"name": "/Users/bob/digits"})
    assert (refused.status_code, mlflow.experiments) == (403, {})
    assert "choose a name in /Users/alice" in refused.json()["message"]
    for name in ("/Users/alice/digits", "/Users/nobody@example.org/digits"):
        assert (await site.post(create, headers=headers, json={"name": name})).status_code == 200
    own = await aof_user(bob)
    assert (await site.post(create, headers=own, json={"name": "/Users/bob/digits"})).status_code == 200


async def test_a_body_that_is_nested_too_deep_is_refused(site, mlflow, alice):
    deep = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    answer = await site.post(f"{API}experiments/create", headers=await aof_user(alice), content=deep)
    assert answer.status_code == 400


async def test_half_a_character_is_refused(site, mlflow, alice):
    body = b'{"name": "/Users/\\ud800/x"}'
    answer = await site.post(f"{API}experiments/create", headers=await aof_user(alice), content=body)
    assert (answer.status_code, mlflow.calls) == (400, [])


@pytest.mark.parametrize(("number", "sent"), [("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1e400", "Infinity")])
async def test_numbers_that_are_not_finite_are_sent_as_protobuf_has_them(site, mlflow, alice, number, sent):
    _, run, headers = await arunning(alice, mlflow)
    metric = f'{{"key": "loss", "value": {number}, "timestamp": 1, "step": 0}}'
    body = f'{{"run_id": "{run.run_id}", "metrics": [{metric}]}}'
    answer = await site.post(f"{API}runs/log-batch", headers=headers, content=body)
    assert answer.status_code == 200
    assert [metric["value"] for metric in mlflow.runs[run.run_id]["metrics"]] == [sent]


async def test_a_run_may_have_no_tags(site, mlflow, alice):
    _, run, headers = await arunning(alice, mlflow)
    answer = await site.post(f"{API}runs/create", headers=headers, json={"experiment_id": "0", "tags": None})
    assert answer.json()["run"]["info"]["run_id"] == run.run_id


async def test_a_name_that_no_file_can_have_is_refused(site, mlflow, alice):
    _, run, _ = await arunning(alice, mlflow)
    place = f"{FILES}/{run.experiment_id}/{run.run_id}/artifacts"
    for path in ("n" * 256, "é" * 128, "/".join(["folder"] * 300)):
        for method in ("PUT", "DELETE", "GET"):
            answer = await site.request(method, f"{place}/{path}", headers=await aof_user(alice), content=b"x")
            assert answer.status_code == 400
            assert "255" in answer.json()["message"]


async def test_mlflow_away_is_said(site, mlflow, alice):
    mlflow.is_away = True
    answer = await site.get(f"{API}experiments/search", headers=await aof_user(alice))
    assert (answer.status_code, answer.json()["error_code"]) == (503, "INTERNAL_ERROR")


async def test_who_opens_a_page_reads_a_sentence(site, mlflow, alice):
    mlflow.is_away = True
    headers = {**await aof_user(alice), "Accept": "text/html,*/*"}
    answer = await site.get("/mlflow/", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/plain; charset=utf-8")
    assert answer.text.startswith("MLflow does not answer at the moment.")


async def test_a_run_that_was_made_again_is_the_trainings_from_then_on(site, mlflow, alice, monkeypatch):
    monkeypatch.setattr(token_reach, "_KNOWN_SECONDS", 0.0)
    job, run, headers = await arunning(alice, mlflow)

    async def begun():
        return (await site.post(f"{API}runs/create", headers=headers, json={})).json()["run"]["info"]["run_id"]

    def lost_and_made():
        mlflow.runs[run.run_id]["tags"].clear()  # nobody finds it any more
        TrackedRun.objects.all().delete()
        return ensure_run(MlflowServer(mlflow.transport), job).run_id

    assert await begun() == run.run_id
    again = await sync_to_async(lost_and_made)()
    assert again != run.run_id
    assert await begun() == again


async def test_files_go_past_mlflow_and_are_their_owners(site, mlflow, alice):
    _, run, _ = await arunning(alice, mlflow)
    headers, bob = await aof_user(alice), await aof_user(await sync_to_async(UserFactory)())
    place = f"{run.experiment_id}/{run.run_id}/artifacts"
    content = b"x" * (3 * 1024**2 + 1)
    assert (await site.put(f"{FILES}/{place}/model/a b.bin", headers=headers, content=content)).status_code == 200
    listed = await site.get(FILES, headers=headers, params={"path": f"{place}/model"})
    assert listed.json() == {"files": [{"path": "a b.bin", "is_dir": False, "file_size": len(content)}]}
    read = await site.get(f"{FILES}/{place}/model/a b.bin", headers=headers)
    assert read.content == content
    assert (read.headers["content-disposition"], read.headers["x-content-type-options"]) == ("attachment", "nosniff")
    shown = {"run_uuid": run.run_id, "path": "model/a b.bin"}
    assert (await site.get("/mlflow/get-artifact", headers=headers, params=shown)).content == content
    assert "artifacts" not in {call for _, _, call in mlflow.calls}
    for refused in (
        site.get(f"{FILES}/{place}/model/a b.bin", headers=bob),
        site.put(f"{FILES}/{place}/x", headers=bob, content=b""),
        site.get(FILES, headers=bob, params={"path": place}),
        site.get("/mlflow/get-artifact", headers=bob, params=shown),
        site.get(FILES, headers=headers, params={"path": f"{place}/../../.."}),
        site.get(FILES, headers=headers),
        site.delete(f"{FILES}/{place}", headers=headers),
    ):
        assert (await refused).status_code in (403, 404)
    assert (await site.delete(f"{FILES}/{place}/model", headers=headers)).status_code == 200
    assert (await site.get(FILES, headers=headers, params={"path": place})).json() == {"files": []}


async def test_whatever_a_script_begins_is_the_run_of_its_training(site, mlflow, alice):
    job, run, headers = await arunning(alice, mlflow)
    named = await site.get(f"{API}experiments/get-by-name", headers=headers, params={"experiment_name": "mine"})
    assert named.json()["experiment"]["experiment_id"] == run.experiment_id
    tags = [{"key": "mine", "value": "1"}, {"key": "tidepool.job", "value": "9"}]
    made = await site.post(f"{API}runs/create", headers=headers, json={"experiment_id": "7", "tags": tags})
    assert made.json()["run"]["info"]["run_id"] == run.run_id
    batch = {"run_id": run.run_id, "metrics": [{"key": "f1", "value": 1.0, "timestamp": 1, "step": 0}]}
    assert (await site.post(f"{API}runs/log-batch", headers=headers, json=batch)).status_code == 200
    ended = {"run_id": run.run_id, "status": "FINISHED", "end_time": 5}
    assert (await site.post(f"{API}runs/update", headers=headers, json=ended)).status_code == 200
    kept = mlflow.run_of(job.pk)
    assert [metric["key"] for metric in kept["metrics"]] == ["f1"]
    assert (kept["status"], kept["tags"]["mine"], len(mlflow.runs)) == ("RUNNING", "1", 1)


async def test_a_call_searches_no_module(settings, tmp_path, alice, monkeypatch):
    searched = []

    class Watch:
        def find_spec(self, name, path=None, target=None):
            searched.append(name)

    settings.TIDEPOOL_MLFLOW_SOCKET = str(tmp_path / "nobody")
    site = httpx.AsyncClient(transport=httpx.ASGITransport(TrackingProxy(below)), base_url="http://testserver")
    headers = await aof_user(alice)
    assert (await site.get(f"{API}experiments/search", headers=headers)).status_code == 503
    monkeypatch.setattr(sys, "meta_path", [Watch(), *sys.meta_path])
    assert (await site.get(f"{API}experiments/search", headers=headers)).status_code == 503
    assert searched == []


async def test_which_metrics_a_script_logs_itself_is_noted(site, mlflow, alice):
    job, run, headers = await arunning(alice, mlflow)
    metric = {"value": 1.0, "timestamp": 1, "step": 0}
    batch = {"run_id": run.run_id, "metrics": [{"key": name, **metric} for name in ("loss", "f1", "loss")]}
    for _ in range(2):
        assert (await site.post(f"{API}runs/log-batch", headers=headers, json=batch)).status_code == 200
    tags = [{"key": "mlflow.parentRunId", "value": run.run_id}]
    made = await site.post(f"{API}runs/create", headers=headers, json={"experiment_id": "0", "tags": tags})
    child = made.json()["run"]["info"]["run_id"]
    for call, values in (
        ("log-metric", {"run_id": run.run_id, "key": "speed", **metric}),
        ("log-parameter", {"run_id": run.run_id, "key": "epochs", "value": "3"}),
        ("log-metric", {"run_id": child, "key": "of the child", **metric}),
    ):
        await site.post(f"{API}runs/{call}", headers=headers, json=values)
    assert (await TrackedRun.objects.aget(job=job)).own_metrics == ["f1", "loss", "speed"]


async def test_a_child_that_a_script_asks_for_is_its_own_too(site, mlflow, alice):
    _, run, headers = await arunning(alice, mlflow)
    tags = [{"key": "mlflow.parentRunId", "value": run.run_id}]
    made = await site.post(f"{API}runs/create", headers=headers, json={"experiment_id": "0", "tags": tags})
    child = made.json()["run"]["info"]["run_id"]
    assert mlflow.runs[child]["experiment"] == run.experiment_id
    ended = {"run_id": child, "status": "FINISHED"}
    assert (await site.post(f"{API}runs/update", headers=headers, json=ended)).status_code == 200
    assert mlflow.runs[child]["status"] == "FINISHED"
    path = f"{FILES}/{run.experiment_id}/{child}/artifacts/a"
    assert (await site.put(path, headers=headers, content=b"a")).status_code == 200


async def test_the_token_of_a_training_opens_nothing_else(site, mlflow, alice):
    _, run, headers = await arunning(alice, mlflow)
    _, other, _ = await arunning(alice, mlflow)
    batch = {"run_id": other.run_id, "metrics": []}
    place = f"{other.experiment_id}/{other.run_id}/artifacts/a"
    for refused in (
        site.post(f"{API}runs/log-batch", headers=headers, json=batch),
        site.post(f"{API}runs/log-batch", headers=headers, json={**batch, "runId": run.run_id}),
        site.get(f"{API}runs/get", headers=headers, params={"run_id": other.run_id}),
        site.post(f"{API}runs/search", headers=headers, json={}),
        site.post(f"{API}runs/delete", headers=headers, json={"run_id": run.run_id}),
        site.post(f"{API}registered-models/create", headers=headers, json={"name": "a"}),
        site.get("/mlflow/", headers=headers),
        site.put(f"{FILES}/{place}", headers=headers, content=b""),
    ):
        assert (await refused).status_code == 403
    assert mlflow.runs[other.run_id]["metrics"] == []


@pytest.mark.parametrize("change", [{"attempt": 2}, {"state": JobState.SUCCEEDED, "finished_at": timezone.now()}])
async def test_the_token_ends_with_its_attempt_and_with_the_job(site, mlflow, alice, change):
    job, run, headers = await arunning(alice, mlflow)
    await sync_to_async(set_job)(job, **change)
    assert (await site.get(f"{API}runs/get", headers=headers, params={"run_id": run.run_id})).status_code == 401


async def test_the_token_of_a_training_is_none_of_the_api(site, mlflow, alice):
    _, _, headers = await arunning(alice, mlflow)
    answer = await sync_to_async(Client().get)("/api/v1/jobs/", headers=headers)
    assert (answer.status_code, json.loads(answer.content)["code"]) == (401, "authentication_failed")


async def test_what_a_script_logs_while_mlflow_is_away_arrives_later(site, mlflow, alice):
    job, run, headers = await arunning(alice, mlflow)
    assert (await site.get(f"{API}runs/get", headers=headers, params={"run_id": run.run_id})).status_code == 200
    mlflow.is_away = True
    begun = await site.post(f"{API}runs/create", headers=headers, json={"experiment_id": "0"})
    assert begun.json()["run"]["info"]["run_id"] == run.run_id
    metric = {"key": "f1", "value": 1.0, "timestamp": 1, "step": 0}
    logged = {"run_id": run.run_id, "metrics": [metric]}
    assert (await site.post(f"{API}runs/log-batch", headers=headers, json=logged)).json() == {}
    stranger = {"run_id": "f" * 32, "metrics": [metric]}
    assert (await site.post(f"{API}runs/log-batch", headers=headers, json=stranger)).status_code == 503
    mlflow.is_away = False
    await sync_to_async(Mirror(MlflowServer(mlflow.transport)).turn)(timezone.now())
    assert mlflow.run_of(job.pk)["metrics"] == [metric]
    assert (await TrackedRun.objects.aget(job=job)).own_metrics == ["f1"], "noted, though MLflow was away"
    assert await UnsentCall.objects.acount() == 0
