"""MLflow's real server behind the proxy, asked by its real clients: who may see and change what, and what is let in."""

import http.client
import json
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from accounts.tokens import create_token
from core.uploads import file_of
from jobs.files.job_folder import job_folder
from jobs.models import Job
from jobs.states import JobState
from studies.control.changes import set_state
from tests.example_study import example_study
from tests.factories import InstanceGroupFactory, JobFactory, UserFactory, set_job
from tests.tracking.clients import CLIENTS, Client, server_installed
from tests.tracking.real import proxy, real_server
from tests.tracking.routes import OPEN_ROUTES, routes_of_server
from tracking import token_reach
from tracking.access import token_of
from tracking.call_rules import call_of
from tracking.launch import artifact_root
from tracking.mirror import Mirror
from tracking.models import ModelVersion
from tracking.registry_actions import default_name, register, set_alias, take_over
from tracking.runs import ensure_run
from tracking.sharing import share
from tracking.upstream import MlflowServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(600)]

#: Each by its name, and what a client does; what it gives back is counted.
CALLS = """
import mlflow
from mlflow import MlflowClient
import os, re
calls = {
    "search_experiments": lambda c: len([e for e in c.search_experiments() if e.experiment_id == experiment]),
    "search_runs": lambda c: len(c.search_runs([experiment])),
    "get_experiment": lambda c: c.get_experiment(experiment).experiment_id == experiment,
    "get_run": lambda c: c.get_run(run).info.run_id == run,
    "log_metric": lambda c: c.log_metric(run, "by_" + role, 1.0),
    "get_metric_history": lambda c: len(c.get_metric_history(run, "loss")),
    "list_artifacts": lambda c: [f.path for f in c.list_artifacts(run)],
    "download_artifacts": lambda c: open(c.download_artifacts(run, "notes.txt")).read(),
}
def answer(call, client):
    try:
        return call(client)
    except mlflow.exceptions.MlflowException as error:
        said = re.search("error code ([0-9]+)", str(error))
        return int(said[1]) if said else error.get_http_status_code()
told = {}
for role, token in tokens.items():
    os.environ["MLFLOW_TRACKING_TOKEN"] = token
    client = MlflowClient()
    if role == "owner":
        client.log_metric(run, "loss", 0.5)
        client.log_text(run, "mine", "notes.txt")
    told[role] = {name: answer(call, client) for name, call in calls.items()}
"""
ALL = {
    "search_experiments": 1,
    "search_runs": 1,
    "get_experiment": True,
    "get_run": True,
    "log_metric": None,
    "get_metric_history": 1,
    "list_artifacts": ["notes.txt"],
    "download_artifacts": "mine",
}
DENIED = dict.fromkeys(ALL, 403)
UNKNOWN = dict.fromkeys(ALL, 401)
EXPECTED = {
    "owner": ALL,
    "stranger": {**DENIED, "search_experiments": 0, "search_runs": 0},
    "administrator": ALL,
    "training": {**ALL, "search_experiments": 403, "search_runs": 403},
    # A training always gets its own experiment, whichever it asks for.
    "other_training": {**DENIED, "get_experiment": False},
    "expired": UNKNOWN,
    "forged": UNKNOWN,
}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    server_installed()
    folder = Path(tempfile.mkdtemp(prefix="tidepool-"))
    named = {"TIDEPOOL_MLFLOW_SOCKET": f"{folder}/run/s", "TIDEPOOL_MLFLOW_URL": "http://it"}
    with override_settings(TIDEPOOL_HOME=folder, **named):
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(home, django_db_setup, django_db_blocker) -> Iterator[None]:
    with django_db_blocker.unblock(), real_server():
        yield


@pytest.fixture
def site(server, monkeypatch) -> Iterator[str]:
    monkeypatch.setattr(token_reach, "_runs", {})
    monkeypatch.setattr(token_reach, "_related", set())
    with proxy() as url:
        yield url


def training(owner):
    """A training that runs in its second attempt, and its run."""
    job = JobFactory(owner=owner)
    set_job(job, state=JobState.RUNNING, attempt=2)
    server = MlflowServer()
    try:
        return job, ensure_run(server, job)
    finally:
        server.close()


def everybody_is_told_what_is_theirs(url):
    """Make the calls about one run with each client and in each role, and assert the answers."""
    alice, bob = UserFactory(username="alice"), UserFactory(username="bob")
    (job, run), (other, _) = training(alice), training(bob)
    tokens = {
        "owner": create_token(alice),
        "stranger": create_token(bob),
        "administrator": create_token(UserFactory(is_staff=True)),
        "training": token_of(job.pk, 2),
        "other_training": token_of(other.pk, 2),
        "expired": token_of(job.pk, 1),
        "forged": token_of(job.pk, 2)[:-1] + "x",
    }
    given = {"experiment": run.experiment_id, "run": run.run_id, "tokens": tokens}
    first, second = (Client(version, url).run(CALLS, **given) for version in CLIENTS)
    assert first == EXPECTED
    # The second one logs once more.
    again = {role: {**calls, "get_metric_history": 2} for role, calls in EXPECTED.items() if calls["get_run"] is True}
    assert second == EXPECTED | again


def test_everybody_is_told_what_is_theirs_by_both_clients(site):
    everybody_is_told_what_is_theirs(site)


@pytest.mark.services
def test_so_they_are_on_postgresql(site):
    assert connection.vendor == "postgresql"
    everybody_is_told_what_is_theirs(site)


def test_each_address_that_is_open_was_looked_at(home, tmp_path):
    routes = routes_of_server(tmp_path)
    # Files are the proxy's own: it answers these before it asks what is open.
    open_now = {f"{method} {path}" for method, path in routes if call_of(path) is not None}
    assert open_now == set(OPEN_ROUTES.read_text().splitlines())


def asked_raw(url, method, path, token, body=None):
    """The path goes out as it stands. Status, body, and what is listed in it."""
    asking = http.client.HTTPConnection(urlsplit(url).netloc)
    try:
        asking.request(method, path, body, {"Authorization": f"Bearer {token}"})
        answer = asking.getresponse()
        body = answer.read()
    finally:
        asking.close()
    is_json = answer.getheader("content-type", "").startswith("application/json")
    return answer.status, body, json.loads(body).get("files", []) if is_json else []


def test_no_path_of_a_file_leads_out_of_the_run(site, home):
    job, run = training(UserFactory())
    folder = artifact_root() / run.experiment_id / run.run_id / "artifacts"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("mine")
    (home / "secret.txt").write_text("a secret")
    (folder / "link.txt").symlink_to(home / "secret.txt")
    (folder / "folder").symlink_to(home)
    run_files, files = f"{run.experiment_id}/{run.run_id}/artifacts", "/mlflow/api/2.0/mlflow-artifacts/artifacts"
    steps = ["../" * count + "secret.txt" for count in (5, 9)]
    outside = [*steps, "link.txt", "folder/secret.txt", str(home / "secret.txt"), "..%00/secret.txt", "mine.txt%00"]
    outside += [step.replace("/", coded).replace(".", "%2e") for step in steps for coded in ("%2f", "%5c")]
    for token in (create_token(job.owner), token_of(job.pk, 2)):
        assert asked_raw(site, "GET", f"{files}/{run_files}/mine.txt", token)[:2] == (200, b"mine")
        for path in outside:
            for address in (
                f"{files}/{run_files}/{path}",
                f"{files}?path={run_files}/{path}",
                f"/mlflow/get-artifact?run_uuid={run.run_id}&path={path}",
                f"/mlflow/api/2.0/mlflow/artifacts/list?run_id={run.run_id}&path={path}",
            ):
                status, body, listed = asked_raw(site, "GET", address, token)
                assert (b"a secret" in body, listed, status < 500) == (False, [], True), address
            asked_raw(site, "PUT", f"{files}/{run_files}/{path}", token, b"new")
            asked_raw(site, "DELETE", f"{files}/{run_files}/{path}", token)
            assert (home / "secret.txt").read_text() == "a secret", path
        (folder / "link.txt").unlink(missing_ok=True)
        (folder / "link.txt").symlink_to(home / "secret.txt")
    assert {path.name for path in home.iterdir()} == {"run", "mlflow", "secret.txt"}


def turn(mirror, at):
    """One turn of the mirror, at this many minutes from now: the registry is looked at each time."""
    mirror.turn(timezone.now() + timedelta(minutes=at))


@pytest.fixture
def mirror(site):
    server = MlflowServer()
    yield Mirror(server)
    server.close()


CHILDREN = """
from mlflow import MlflowClient
import os
os.environ["MLFLOW_TRACKING_TOKEN"] = token
client = MlflowClient()
[experiment] = client.search_experiments()
search = lambda filter: client.search_runs([experiment.experiment_id], filter)
[parent] = search(f"tags.`tidepool.study` = '{study}'")
children = search(f"tags.mlflow.parentRunId = '{parent.info.run_id}'")
told = {
    "status": parent.info.status,
    "metrics": parent.data.metrics,
    "sampler": parent.data.params["tidepool/sampler"],
    "children": sorted(run.data.tags["tidepool.trial"] for run in children),
    "runs": len(search("")),
}
"""


def test_a_study_has_its_trials_as_children(site, mirror):
    now, alice = timezone.now(), UserFactory()
    job = JobFactory(owner=alice, state=JobState.SUCCEEDED, started_at=now, finished_at=now)
    study = example_study(job, now)
    turn(mirror, 0)
    # The run of this trial is made after that of its study, and tells so from the beginning.
    later = JobFactory(owner=alice, model=job.model, bundle=study.pk)
    study.trials.filter(number=3).update(job=later)
    set_state(study, study.State.FINISHED, "All 20 trials are over.", only=[study.State.RUNNING])
    turn(mirror, 1)
    for version in CLIENTS:
        assert Client(version, site).run(CHILDREN, study=study.pk, token=create_token(alice)) == {
            "status": "FINISHED",
            "metrics": {"best_test_accuracy": 96.4},
            "sampler": "tpe",
            "children": ["1", "3"],
            "runs": 3,
        }


READ = """
from mlflow import MlflowClient
import mlflow, os
os.environ["MLFLOW_TRACKING_TOKEN"] = token
def may(call):
    try:
        call()
    except mlflow.exceptions.MlflowException as error:
        return False
    return True
client = MlflowClient()
told = [may(lambda: client.get_run(run)), may(lambda: client.log_metric(run, "not_mine", 1.0))]
"""


def test_members_of_a_group_read_what_is_shared_with_it_while_they_are_members(site, mirror):
    (job, run), member = training(UserFactory()), UserFactory()
    group = InstanceGroupFactory()
    group.members.add(job.owner, member)
    client = Client(CLIENTS[0], site)
    seen = []
    for minutes, change in enumerate(
        (
            lambda: None,
            lambda: share(job.owner, job.model.model, str(group.pk)),
            lambda: group.members.remove(member),
            lambda: group.members.add(member),
            lambda: share(job.owner, job.model.model, str(group.pk), stops=True),
        )
    ):
        change()
        turn(mirror, minutes)
        seen.append(client.run(READ, run=run.run_id, token=create_token(member)))
    assert seen == [[False, False], [True, False], [False, False], [True, False], [False, False]]


REGISTER = """
import mlflow, os
os.environ["MLFLOW_TRACKING_TOKEN"] = token
client = mlflow.MlflowClient()
client.log_text(run, "weights", "model/state.safetensors")
client.create_registered_model("mine")
theirs = client.create_model_version("mine", f"runs:/{run}/model", run_id=run)
client.set_registered_model_alias("mine", "champion", theirs.version)
ours = client.get_model_version(name, "1")
where = client.get_model_version_download_uri(name, "1")
told = [ours.run_id, where, open(mlflow.artifacts.download_artifacts(where + "/weights.pth")).read()]
"""


@pytest.mark.parametrize("version", CLIENTS)
def test_models_are_registered_both_ways(site, mirror, home, version):
    job, run = training(UserFactory())
    set_job(job, state=JobState.SUCCEEDED, completed_attempt=2, finished_at=timezone.now())
    job = Job.objects.get(pk=job.pk)
    with override_settings(TIDEPOOL_RESULTS_ROOT=home / f"results-{version}"):
        weights = job_folder(job).path / "attempt-2/model/train/model_epoch_final.pth"
        weights.parent.mkdir(parents=True)
        weights.write_text("trained")
        register(job, job.owner)
        turn(mirror, 0)
        given = {"run": run.run_id, "name": default_name(job), "token": create_token(job.owner)}
        code = REGISTER.replace('"mine"', f'"mine-{version}"')
        told = Client(version, site).run(code, **given)
        place = f"mlflow-artifacts:/{run.experiment_id}/{run.run_id}/artifacts"
        assert told == [run.run_id, f"{place}/trained", "trained"]
        turn(mirror, 1)
        theirs, ours = ModelVersion.objects.filter(job=job).order_by("-name")
        if theirs.name == default_name(job):
            theirs, ours = ours, theirs
        assert (theirs.name, theirs.number, theirs.aliases) == (f"mine-{version}", 1, ["champion"])
        set_alias(ours, "staging")
        set_alias(theirs, "champion", remove=True)
        turn(mirror, 2)
        assert {row.name: row.aliases for row in ModelVersion.objects.filter(job=job)} == {
            default_name(job): ["staging"],
            f"mine-{version}": [],
        }
        assert file_of(take_over(theirs, job.owner)).read_text() == "weights"
