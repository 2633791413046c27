"""Trainings of a model, and validations of what they left."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup, Job, Validation
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from tests.factories import InstanceGroupFactory, JobFactory, set_job
from tests.wmla.registry.deep_learning import ask, refusal

GIVEN = {
    "trainName": "resnet-20260101120000",
    "dlFramework": "PyTorch",
    "clusterSize": 8,
    "gpuRatio": 1,
    "syncMode": "SYNC",
}
TRAININGS = "models/resnet/trainings"
VALIDATIONS = "models/resnet/validations"
ONE = f"{TRAININGS}/resnet-20260101120000"
SCRIPT = "from fabric_model import FabricModel\nFabricModel(m, d, l, o).train(1, 2)\n"


@pytest.fixture
def training(alice_api: APIClient, group: InstanceGroup, model: RegisteredModelVersion) -> Job:
    made = ask(alice_api, "POST", TRAININGS, GIVEN)
    assert made.status_code == 201, made.content
    return Job.objects.get()


@pytest.fixture
def trained(training: Job) -> Job:
    """Over, with its weights on disk."""
    folder = job_folder(training)
    (folder.code / "elastic-main.py").write_text(SCRIPT)
    weights = folder.start_attempt(1) / "model/train"
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "model_epoch_final.pth").write_bytes(b"weights")
    set_job(
        training, state=JobState.SUCCEEDED, finished_at=timezone.now(), attempt=1, completed_attempt=1, progress=1.0
    )
    training.refresh_from_db()
    return training


def test_a_training_is_an_ordinary_job(alice_api: APIClient, training: Job, sig_id: str) -> None:
    shown = ask(alice_api, "GET", ONE).json()
    assert set(shown) == {"model", "dataset", "trainingParameters"}
    assert (shown["model"], shown["dataset"]) == ("resnet", "cifar10")
    told = shown["trainingParameters"]
    expected = {
        "sigId": sig_id,
        "sigName": "sig-elastic",
        "trainName": GIVEN["trainName"],
        "dlFramework": "PyTorch",
        "status": "SUBMITTED",
        "user": "alice",
        "clusterSize": 8,
        "progress": None,
        "cmd": "elastic-main.py",
        "sigMasterUrl": None,
        "historyServerUrl": None,
    }
    assert {**told, **expected} == told
    assert told["driverid"].startswith("driver-")
    assert told["appid"].startswith("app-")
    assert told["appURL"].endswith(f"/jobs/{training.pk}/")
    assert ask(alice_api, "GET", f"{TRAININGS}/").json() == [shown]
    assert ask(alice_api, "GET", "models/resnet/trainingnames").json() == [GIVEN["trainName"]]
    own = alice_api.get(f"/api/v1/jobs/{training.pk}/").json()
    assert (own["name"], own["max_slots"], own["min_slots"]) == (GIVEN["trainName"], 8, 1)


def test_a_training_has_all_of_wmlas_fields(alice_api: APIClient, training: Job) -> None:
    told = ask(alice_api, "GET", ONE).json()["trainingParameters"]
    assert set(told) == {
        *("sigId", "sigName", "sigMasterUrl", "driverid", "cmd", "trainName", "dlFramework", "status", "appid"),
        *("appURL", "createTime", "user", "progress", "historyServerUrl", "clusterSize"),
    }
    set_job(training, state=JobState.RUNNING, progress=0.254)
    running = ask(alice_api, "GET", ONE).json()["trainingParameters"]
    assert (running["status"], running["progress"]) == ("RUNNING", 25)


def test_what_a_form_fills_in_by_itself_changes_nothing(alice_api: APIClient, group: Any, model: Any) -> None:
    filled = {"testInterval": 100, "testIteration": 10, "distribute": True, "wtURL": "", "wtfolder": None, "cmd": ""}
    plain = ask(alice_api, "POST", TRAININGS, GIVEN).json()["trainingParameters"]
    full = ask(alice_api, "POST", TRAININGS, {**GIVEN, **filled, "trainName": "full", "wfinit": None})
    assert full.status_code == 201, full.content
    assert full.json()["trainingParameters"]["cmd"] == plain["cmd"]


@pytest.mark.parametrize("missing", ["clusterSize", "dlFramework", "trainName"])
def test_what_a_training_needs_is_named(alice_api: APIClient, group: Any, model: Any, missing: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != missing}
    assert missing in refusal(ask(alice_api, "POST", TRAININGS, given), 400)


def test_the_group_is_the_one_that_is_named(alice_api: APIClient, group: InstanceGroup, model: Any) -> None:
    InstanceGroupFactory(name="second", resource_group=group.resource_group)
    for number, (body, query) in enumerate([({"sigId": "second"}, ""), ({}, "?sigName=second")]):
        answer = ask(alice_api, "POST", TRAININGS + query, {**GIVEN, **body, "trainName": f"t{number}"})
        assert answer.json()["trainingParameters"]["sigName"] == "second"
    assert "not found" in refusal(ask(alice_api, "POST", TRAININGS, {**GIVEN, "sigId": "none"}), 400)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"clusterSize": 9}, "8 GPUs"),
        ({"clusterSize": 0}, "GPUs"),
        ({"clusterSize": "many"}, "clusterSize"),
        ({"clusterSize": None}, "clusterSize"),
        ({"clusterSize": 10**30}, "Error 400"),
        ({"dlFramework": "Caffe"}, "PyTorch"),
        ({"syncMode": "ASYNC"}, "always synchronous"),
        ({"gpuRatio": 2}, "exactly one GPU"),
        ({"trainName": ""}, "trainName"),
        ({"trainName": "a\x07"}, "control"),
        ({"trainName": "x" * 300}, "300 characters"),
        ({"trainName": {"a": 1}}, "trainName"),
        ({"wtURL": "ftp://x"}, "wfinit"),
        ({"cmd": "--epochs 3"}, "cmd is not supported"),
        ({"dataset": "none"}, "Dataset 'none' not found"),
    ],
)
def test_what_does_not_fit_is_refused(
    alice_api: APIClient, group: Any, model: Any, change: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(ask(alice_api, "POST", TRAININGS, {**GIVEN, **change}), 400)
    assert not Job.objects.exists()


@pytest.mark.parametrize("body", ["text", [1], 1])
def test_a_body_that_is_no_object_is_refused(alice_api: APIClient, model: Any, body: Any) -> None:
    refusal(ask(alice_api, "POST", TRAININGS, body), 400)


def test_a_name_is_given_once(alice_api: APIClient, training: Job) -> None:
    assert "choose another name" in refusal(ask(alice_api, "POST", TRAININGS, GIVEN), 409)


def test_a_training_is_stopped_once(alice_api: APIClient, bob_api: APIClient, training: Job) -> None:
    refusal(ask(bob_api, "PUT", f"{ONE}/stop"), 404)
    assert ask(alice_api, "PUT", f"{ONE}/stop").status_code == 204
    assert ask(alice_api, "GET", ONE).json()["trainingParameters"]["status"] == "KILLED"
    assert refusal(ask(alice_api, "PUT", f"{ONE}/stop"), 400) == (
        f"Error 400: Training {GIVEN['trainName']} is already stopped.\n"
    )


def test_a_deleted_one_is_stopped_and_gone_from_here(alice_api: APIClient, bob_api: APIClient, training: Job) -> None:
    refusal(ask(bob_api, "DELETE", ONE), 404)
    assert ask(alice_api, "DELETE", ONE).status_code == 204
    refusal(ask(alice_api, "GET", ONE), 404)
    assert ask(alice_api, "GET", TRAININGS).json() == []
    assert alice_api.get(f"/api/v1/jobs/{training.pk}/").json()["state"] == "CANCELLED"


def test_others_see_nothing_of_it(bob_api: APIClient, carol_api: APIClient, training: Job) -> None:
    refusal(ask(bob_api, "GET", ONE), 404)
    assert ask(bob_api, "GET", TRAININGS).json() == []
    assert len(ask(carol_api, "GET", TRAININGS).json()) == 1


def test_final_weights_are_sent_and_can_be_begun_with(alice_api: APIClient, bob_api: APIClient, trained: Job) -> None:
    sent = ask(alice_api, "GET", f"{ONE}/weightfile")
    assert b"".join(sent.streaming_content) == b"weights"
    refusal(ask(bob_api, "GET", f"{ONE}/weightfile"), 404)
    again = ask(alice_api, "POST", TRAININGS, {**GIVEN, "trainName": "again", "wfinit": trained.name})
    assert again.status_code == 201, again.content
    assert Job.objects.get(name="again").initial_job == trained
    refusal(ask(alice_api, "GET", f"{TRAININGS}/again/weightfile"), 404)
    refusal(ask(alice_api, "POST", TRAININGS, {**GIVEN, "trainName": "third", "wfinit": "none"}), 404)


def test_the_list_costs_the_same_however_long_it_is(
    alice_api: APIClient, alice: User, group: Any, model: Any, django_assert_num_queries: Any
) -> None:
    for count in (2, 20):
        JobFactory.create_batch(count, owner=alice, model=model, instance_group=group)
        with django_assert_num_queries(5):
            ask(alice_api, "GET", TRAININGS)
    rows = ask(alice_api, "GET", f"{TRAININGS}?length=3").json()
    newest = Job.objects.order_by("-pk")[:3]
    assert [row["trainingParameters"]["trainName"] for row in rows] == [job.name for job in newest]


@pytest.mark.parametrize("name", ["%00", "%ed%a0%80", "x" * 3000, "..", "%2e%2e%2fx", "%0a"])
@pytest.mark.parametrize("of", [TRAININGS, VALIDATIONS])
def test_odd_names_are_not_found(alice_api: APIClient, model: Any, of: str, name: str) -> None:
    assert ask(alice_api, "GET", f"{of}/{name}").status_code == 404


# --- Validations ---


@pytest.fixture
def validation(alice_api: APIClient, trained: Job) -> Validation:
    given = {"valName": "v1", "trainName": trained.name, "metrics": ["Top1", "ConfusionMatrix"], "threshold": 0.5}
    made = ask(alice_api, "POST", VALIDATIONS, given)
    assert made.status_code == 201, made.content
    return Validation.objects.get()


def test_a_validation_measures_what_a_training_left(alice_api: APIClient, validation: Validation) -> None:
    shown = ask(alice_api, "GET", f"{VALIDATIONS}/v1").json()
    expected = {
        "valName": "v1",
        "trainName": GIVEN["trainName"],
        "status": "SUBMITTED",
        "outPairs": [],
        "user": "alice",
    }
    assert {**shown, **expected, "metrics": ["Top1", "ConfusionMatrix"]} == shown
    Validation.objects.update(result={"accuracy": 87.5, "loss": 0.4, "samples": 8, "confusion": [[4, 0], [1, 3]]})
    Job.objects.filter(pk=validation.job_id).update(state=JobState.SUCCEEDED, finished_at=timezone.now())
    [shown] = ask(alice_api, "GET", VALIDATIONS).json()
    assert shown["status"] == "FINISHED"
    assert shown["outPairs"] == [
        {"name": "Top1", "value": 87.5},
        {"name": "ConfusionMatrix", "value": [[4, 0], [1, 3]]},
        {"name": "Loss", "value": 0.4},
        {"name": "Samples", "value": 8},
    ]
    # Not among the trainings.
    assert ask(alice_api, "GET", "models/resnet/trainingnames").json() == [GIVEN["trainName"]]


@pytest.mark.parametrize(
    ("change", "status", "sentence"),
    [
        ({"metrics": ["IoU"]}, 400, "IoU is not measured here: use Top1, ConfusionMatrix."),
        ({"metrics": ["mAP"]}, 400, "mAP is not measured here"),
        ({"metrics": "Top1"}, 400, "metrics"),
        ({"metrics": ["Top1"] * 30}, 400, "metrics"),
        ({"threshold": "x"}, 400, "threshold"),
        ({"valName": "v1"}, 409, "choose another name"),
        ({"valName": "a\x00"}, 400, "valName"),
        ({"valName": "a/b"}, 400, "slash"),
        ({"trainName": "none"}, 404, "Training none not found"),
    ],
)
def test_a_validation_that_does_not_fit_is_refused(
    alice_api: APIClient, validation: Validation, change: dict[str, Any], status: int, sentence: str
) -> None:
    given = {"valName": "v2", "trainName": GIVEN["trainName"], **change}
    assert sentence in refusal(ask(alice_api, "POST", VALIDATIONS, given), status)
    assert Validation.objects.count() == 1


def test_what_still_trains_is_not_validated(alice_api: APIClient, training: Job) -> None:
    given = {"valName": "v1", "trainName": training.name}
    assert "still running" in refusal(ask(alice_api, "POST", VALIDATIONS, given), 409)


def test_a_validation_is_stopped_and_deleted(alice_api: APIClient, bob_api: APIClient, validation: Validation) -> None:
    refusal(ask(bob_api, "PUT", f"{VALIDATIONS}/v1/stop"), 404)
    assert ask(alice_api, "PUT", f"{VALIDATIONS}/v1/stop").status_code == 204
    assert "Validation v1 is already stopped." in refusal(ask(alice_api, "PUT", f"{VALIDATIONS}/v1/stop"), 400)
    refusal(ask(bob_api, "DELETE", f"{VALIDATIONS}/v1"), 404)
    assert ask(alice_api, "DELETE", f"{VALIDATIONS}/v1").status_code == 204
    refusal(ask(alice_api, "GET", f"{VALIDATIONS}/v1"), 404)
    assert ask(alice_api, "GET", VALIDATIONS).json() == []


def test_the_list_of_validations_costs_the_same_however_long_it_is(
    alice_api: APIClient, trained: Job, django_assert_num_queries: Any
) -> None:
    terms = {name: getattr(trained, name) for name in ("owner", "model", "dataset", "instance_group")}
    for count in (2, 20):
        for job in JobFactory.create_batch(count, **terms):
            Validation.objects.create(job=job, trained=trained)
        with django_assert_num_queries(5):
            ask(alice_api, "GET", VALIDATIONS)


def test_a_validation_without_a_result_says_why(alice_api: APIClient, validation: Validation, home: Path) -> None:
    set_job(validation.job, state=JobState.FAILED, finished_at=timezone.now(), error={"message": "out of memory"})
    shown = ask(alice_api, "GET", f"{VALIDATIONS}/v1").json()
    assert (shown["status"], shown["message"]) == ("FAILED", "out of memory")
