"""A validation is a run like any other: queued, scheduled, and judged; what it wrote down is checked and kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from core.errors import Conflict, UserError
from insights.time_left import time_left
from jobs import actions
from jobs.actions import ValidationRequest
from jobs.control.dispatch import build_sync
from jobs.control.outcome import MAX_FRUITLESS_STARTS
from jobs.files.job_folder import job_folder
from jobs.files.validation_runs import class_scores, keep_result, parsed_result, why_not_validated
from jobs.models import Job, Validation
from jobs.pages.train.views import beginnings
from jobs.queries.jobs import validation_problem
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from tests.factories import DatasetVersionFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db

RESULT = {"split": "held-out", "samples": 4, "loss": 0.5, "accuracy": 75.0, "confusion": [[2, 0], [1, 1]]}


@pytest.fixture
def trained(cluster: Cluster, submit: Submit, code: RegisteredModelVersion) -> Job:
    """A training that is over and left its weights."""
    (Path(code.path) / "main.py").write_text("from fabric_model import FabricModel\n")
    job = submit(parameters={"hidden": 8})
    cluster.turn()
    cluster.train(job)
    weights = job_folder(job).attempt(1) / "model" / "train"
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "model_epoch_final.pth").write_bytes(b"weights")
    cluster.finish(job)
    cluster.settle()
    job.refresh_from_db()
    assert job.state == JobState.SUCCEEDED
    return job


def _measured(cluster: Cluster, job: Job, written: str | None) -> Validation:
    """The run goes its way and leaves this result."""
    cluster.turn()
    cluster.train(job, plain=True)
    if written is not None:
        (job_folder(job).attempt(1) / "validation.json").write_text(written)
    cluster.finish(job, step=0)
    cluster.settle()
    return Validation.objects.select_related("job").get(job=job)


def test_it_is_scheduled_and_told_what_to_do(cluster: Cluster, trained: Job, alice: User) -> None:
    job = actions.validate(trained, ValidationRequest(split="testing"), alice).job
    assert (job.state, job.max_slots, job.owner, job.parameters) == ("PENDING", 1, alice, {"hidden": 8})
    cluster.cycle()
    job.refresh_from_db()
    desired = next(desired for desired in build_sync(job.run.lead_host).jobs if desired.job == job.pk)
    assert (desired.launch.validate, desired.launch.initial_weights) == ("testing", str(job_folder(job).initial()))
    assert Path(desired.launch.code_folder, "main.py").read_text() == "from fabric_model import FabricModel\n"


def test_a_training_is_not_told_to_validate(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.cycle()
    job.refresh_from_db()
    assert build_sync(job.run.lead_host).jobs[0].launch.validate == ""


def test_the_result_is_kept(cluster: Cluster, trained: Job, alice: User) -> None:
    validation = _measured(cluster, actions.validate(trained, ValidationRequest(), alice).job, json.dumps(RESULT))
    assert validation.job.state == JobState.SUCCEEDED
    assert validation.result == RESULT
    assert validation_problem(validation) is None
    text = [event.text for event in validation.job.events.order_by("seq")]
    assert "Evaluated on the held-out samples. The result is saved." in list(text)


def test_how_much_is_measured_is_told_while_it_measures(cluster: Cluster, trained: Job, alice: User) -> None:
    job = actions.validate(trained, ValidationRequest(), alice).job
    cluster.turn()
    cluster.train(job, plain=True)
    job.refresh_from_db()
    assert time_left(job).text == "no estimate before 10 progress reports and 2 s"

    cluster.log_step(job, 30, samples_per_second=60.0)
    cluster.report()

    job.refresh_from_db()
    assert (job.state, job.run.step, job.run.progress) == (JobState.RUNNING, 30, 0.3)
    cluster.log_step(job, 100, samples_per_second=60.0)
    cluster.finish(job, step=0)
    cluster.settle()
    job.refresh_from_db()
    assert (job.state, job.run.step, job.run.progress) == (JobState.SUCCEEDED, 100, 1.0)


def test_one_that_is_killed_while_it_measures_is_not_started_for_ever(
    cluster: Cluster, trained: Job, alice: User
) -> None:
    job = actions.validate(trained, ValidationRequest(), alice).job
    for life in range(1, MAX_FRUITLESS_STARTS + 1):
        cluster.turn()
        cluster.train(job, plain=True)
        cluster.log_step(job, 10 * life, samples_per_second=60.0)
        cluster.report()
        for rank in cluster.ranks(job):
            cluster.hosts[rank.member_id.split(".")[0]].end(rank.slot, signal=9)
        cluster.report()
        cluster.settle()
        job.refresh_from_db()
        assert (job.state, job.run.attempt) == (
            (JobState.FAILED, life) if life == MAX_FRUITLESS_STARTS else (JobState.PENDING, life)
        )


def test_what_cannot_be_used_is_left_out_and_said(cluster: Cluster, trained: Job, alice: User) -> None:
    validation = _measured(cluster, actions.validate(trained, ValidationRequest(), alice).job, None)
    assert (validation.job.state, validation.result) == (JobState.SUCCEEDED, {})
    assert "without a valid result" in str(validation_problem(validation))
    file = job_folder(validation.job).attempt(1) / "validation.json"
    for written in ("{", "[]", json.dumps({**RESULT, "accuracy": 101}), "[" * 100_000):
        file.write_text(written)
        keep_result(validation.job)
        validation.refresh_from_db()
        assert validation.result == {}
    file.write_text(json.dumps(RESULT))
    keep_result(validation.job)
    validation.refresh_from_db()
    assert validation.result == RESULT


def test_a_link_in_place_of_the_result_is_not_followed(
    cluster: Cluster, trained: Job, alice: User, tmp_path: Path
) -> None:
    (tmp_path / "secret.json").write_text(json.dumps(RESULT))
    job = actions.validate(trained, ValidationRequest(), alice).job
    cluster.turn()
    cluster.train(job, plain=True)
    (job_folder(job).attempt(1) / "validation.json").symlink_to(tmp_path / "secret.json")
    cluster.finish(job, step=0)
    cluster.settle()
    assert Validation.objects.get(job=job).result == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"split": "training"},
        {"samples": -1},
        {"samples": True},
        {"samples": 2**60},
        {"loss": "0.5"},
        {"loss": float("inf")},
        {"accuracy": -1},
        {"confusion": []},
        {"confusion": [[1, 2]]},
        {"confusion": [[1.5]]},
        {"confusion": [[0] * 101] * 101},
        {"confusion": "none"},
    ],
)
def test_results_of_other_shapes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parsed_result({**RESULT, **changes})


def test_classes_are_scored_by_what_was_found_and_what_was_right() -> None:
    scores = class_scores([[2, 0, 0], [1, 1, 0], [0, 0, 0]])
    assert [(score.samples, score.recall, score.precision) for score in scores] == [
        (2, 100.0, 200 / 3),
        (2, 50.0, 100.0),
        (0, None, None),
    ]


def test_another_dataset_in_its_newest_version(trained: Job, alice: User) -> None:
    first = DatasetVersionFactory(dataset__name="other", number=1)
    newest = DatasetVersionFactory(dataset=first.dataset, number=2)
    Path(newest.path).mkdir(parents=True, exist_ok=True)
    assert actions.validate(trained, ValidationRequest(dataset="other"), alice).job.dataset == newest
    DatasetVersionFactory(dataset=trained.dataset.dataset, number=99, path=trained.dataset.path)
    assert actions.validate(trained, ValidationRequest(), alice).job.dataset == trained.dataset


@pytest.mark.parametrize(
    ("source", "engine", "sentence"),
    [
        ("from tidepool.torch import Session\n", "elastic", "add session.validate_on"),
        ("import torch\n", "elastic", "Only scripts with a tidepool Session"),
        ("from fabric_model import FabricModel\n", "fixed", "fixed-size script"),
    ],
)
def test_what_cannot_be_validated_is_said_with_what_to_add(
    trained: Job, alice: User, source: str, engine: str, sentence: str
) -> None:
    (job_folder(trained).code / "main.py").write_text(source)
    RegisteredModelVersion.objects.filter(pk=trained.model_id).update(engine=engine)
    trained.refresh_from_db()
    with pytest.raises(Conflict, match=sentence):
        actions.validate(trained, ValidationRequest(), alice)
    assert not Validation.objects.exists()


def test_neither_a_running_training_nor_a_validation_is_validated(submit: Submit, trained: Job, alice: User) -> None:
    assert "The training is still running" in why_not_validated(submit())
    run = actions.validate(trained, ValidationRequest(), alice).job
    assert "This run has validated" in why_not_validated(run)
    with pytest.raises(Conflict):
        actions.clone(run, alice)


def test_a_training_without_weights_cannot_be_measured(trained: Job, alice: User) -> None:
    (job_folder(trained).attempt(1) / "model" / "train" / "model_epoch_final.pth").unlink()
    with pytest.raises(UserError, match="has no weights"):
        actions.validate(trained, ValidationRequest(), alice)
    assert Job.objects.count() == 1


def test_a_run_that_validates_is_no_beginning(cluster: Cluster, trained: Job, alice: User) -> None:
    run = _measured(cluster, actions.validate(trained, ValidationRequest(), alice).job, json.dumps(RESULT)).job
    offered = [value for _, choices in beginnings(alice) for value, _ in choices]
    assert f"weights-{trained.pk}" in offered
    assert f"weights-{run.pk}" not in offered
