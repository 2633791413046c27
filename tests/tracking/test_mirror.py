"""Every job is a run of MLflow, with what the database knows of it; MLflow's absence costs nothing."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import AllocationPoint, AttemptSoftware, Environment, Job, MetricPoint
from jobs.states import JobState, Reason
from tests.factories import DatasetVersionFactory, JobFactory, set_job
from tests.jobs.conftest import cluster, code, given, group, submit
from tracking.access import experiment_name
from tracking.mirror import Mirror, status_of
from tracking.models import TrackedRun
from tracking.runs import note_own_metrics
from tracking.upstream import Away, MlflowServer

__all__ = ["cluster", "code", "given", "group", "submit"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def mirror(mlflow):
    return Mirror(MlflowServer(mlflow.transport))


def log(job, *steps, name="loss", value=0.5):
    now = timezone.now()
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name=name, step=step, epoch=0, value=value, at=now) for step in steps
    )


def sent(mlflow, job, name="loss"):
    return [metric["step"] for metric in mlflow.run_of(job.pk)["metrics"] if metric["key"] == name]


def test_a_job_is_a_run_with_its_parameters_and_digests(mirror, mlflow):
    job = JobFactory(
        parameters={"epochs": 3},
        arguments=["--lr", "0.1"],
        environment={"SECRET": "x"},
        dataset=DatasetVersionFactory(digest="d" * 64),
    )
    mirror.turn(timezone.now())
    run = mlflow.run_of(job.pk)
    assert mlflow.experiments == {"1": (f"/Users/{job.owner.username}/{job.model.model.name}", job.owner.username)}
    assert run["params"].items() >= {
        ("epochs", "3"),
        ("lr", "0.1"),
        ("tidepool/dataset_sha256", "d" * 64),
        ("tidepool/code_sha256", job.model.digest),
        ("tidepool/max_slots", str(job.max_slots)),
    }
    assert "SECRET" not in str(run)
    assert (run["name"], run["status"], run["owner"]) == (job.name, "SCHEDULED", job.owner.username)
    assert f"/jobs/{job.pk}/" in run["tags"]["mlflow.note.content"]


def test_a_run_has_the_versions_that_its_newest_attempt_runs_with(mirror, mlflow):
    job = JobFactory()
    mirror.turn(timezone.now())
    for attempt, torch in ((1, "2.12.0"), (2, "2.13.0")):
        packages = {"torch": torch, "numpy": "2.3.1"}
        environment = Environment.objects.create(digest=str(attempt) * 64, python="3.11.7", packages=packages)
        used = {"attempt": attempt, "host": "a", "environment": environment}
        AttemptSoftware.objects.create(job=job, cuda="13.0", **used)
    set_job(job, state=JobState.RUNNING)
    mirror.turn(timezone.now())
    found = {name: value for name, value in mlflow.run_of(job.pk)["tags"].items() if name.startswith("tidepool.")}
    versions = {"python": "3.11.7", "torch": "2.13.0", "cuda": "13.0", "environment": "2" * 64}
    assert found.items() >= {(f"tidepool.{name}", value) for name, value in versions.items()}
    assert not {"tidepool.nccl", "tidepool.driver"} & found.keys()


def test_metrics_arrive_once_in_batches_and_never_twice_for_a_step(mirror, mlflow):
    job = JobFactory()
    log(job, *range(1, 1502))
    log(job, 1, value=None, name="accuracy")
    mirror.turn(timezone.now())
    assert sent(mlflow, job) == list(range(1, 1502))
    assert mlflow.run_of(job.pk)["metrics"][-1]["value"] == "NaN"
    batches = [call for _, _, call in mlflow.calls if call == "runs/log-batch"]
    assert len(batches) == 1 + 2 + 1  # parameters, metrics, tags
    # A restart from step 1,400 makes the steps behind it again.
    job.metrics.filter(name="loss", step__gt=1400).delete()
    log(job, *range(1401, 1504))
    mirror.turn(timezone.now())
    assert sent(mlflow, job) == list(range(1, 1504))


def test_world_size_and_generation_are_metrics(mirror, mlflow):
    job = JobFactory()
    log(job, 7)
    AllocationPoint.objects.create(
        job=job,
        at=timezone.now() + timedelta(seconds=1),
        slots=4,
        attempt=1,
        generation=2,
        reason_code=Reason.SUBMITTED,
    )
    mirror.turn(timezone.now())
    told = {(metric["key"], metric["value"], metric["step"]) for metric in mlflow.run_of(job.pk)["metrics"]}
    assert told >= {("cluster/world_size", 4, 7), ("cluster/generation", 2, 7)}


def test_status_follows_the_job_to_its_end(mirror, mlflow):
    job = JobFactory()
    mirror.turn(timezone.now())
    finished = timezone.now() - timedelta(minutes=2)
    set_job(job, state=JobState.SUCCEEDED, finished_at=finished)
    mirror.turn(timezone.now())
    run = mlflow.run_of(job.pk)
    assert (run["status"], run["end_time"]) == ("FINISHED", int(finished.timestamp() * 1000))
    assert TrackedRun.objects.get(job=job).is_done
    count = len(mlflow.calls)
    mirror.turn(timezone.now())
    assert len(mlflow.calls) == count


@pytest.mark.parametrize("state", JobState)
def test_each_state_has_a_status(state):
    assert status_of(state) in {"SCHEDULED", "RUNNING", "FINISHED", "FAILED", "KILLED"}


def test_what_is_read_of_a_plain_scripts_files_arrives(mirror, mlflow, cluster, submit, code):
    """TensorBoard's event files and val_dict_list.json: the executor reads them, and the mirror sends what is read."""
    type(code).objects.filter(pk=code.pk).update(engine="single")
    job = submit(max_slots=1)
    cluster.turn()
    job = Job.objects.get(pk=job.pk)
    read = [
        {"step": 7, "at": 1.0, "kind": "tensorboard", "where": "log/events.out.tfevents.1", "metrics": {"lr": 0.5}},
        {"step": 45, "at": 2.0, "kind": "json", "where": "val_dict_list.json", "metrics": {"accuracy": 50.0}},
    ]
    cluster.hosts[job.run.lead_host].journals[f"{job.pk}.1.observed"] += [("observed", step) for step in read]
    cluster.report()
    mirror.turn(timezone.now())
    assert (sent(mlflow, job, "lr"), sent(mlflow, job, "accuracy")) == ([7], [45])


def test_what_a_plain_script_logs_itself_is_not_sent_a_second_time(mirror, mlflow):
    job = JobFactory(model__engine="single")
    begun = timezone.now()
    mirror.turn(begun)
    log(job, 1, 2)
    log(job, 1, name="speed")
    mirror.turn(begun + timedelta(seconds=5))
    assert sent(mlflow, job) == sent(mlflow, job, "speed") == [], "its own client may be about to send it"
    note_own_metrics(job.pk, {"loss"})
    mirror.turn(begun + timedelta(seconds=20))
    assert (sent(mlflow, job), sent(mlflow, job, "speed")) == ([], [1])
    log(job, 3)
    log(job, 2, name="speed")
    set_job(job, state=JobState.SUCCEEDED, finished_at=begun + timedelta(seconds=21))
    mirror.turn(begun + timedelta(seconds=21))
    assert (sent(mlflow, job), sent(mlflow, job, "speed")) == ([], [1, 2]), "nothing is waited for after the end"


def test_nothing_is_lost_while_mlflow_is_away(mirror, mlflow):
    job = JobFactory()
    mirror.turn(timezone.now())
    mlflow.is_away = True
    log(job, 1, 2)
    other = JobFactory()
    with pytest.raises(Away):
        mirror.turn(timezone.now())
    mlflow.is_away = False
    log(job, 3)
    mirror.turn(timezone.now())
    assert sent(mlflow, job) == [1, 2, 3]
    assert mlflow.run_of(other.pk)["status"] == "SCHEDULED"


def test_one_whose_experiment_belongs_to_somebody_else_holds_up_nobody(mirror, mlflow):
    job = JobFactory()
    mlflow.experiments["9"] = (experiment_name(job), "mallory")
    other = JobFactory()
    mirror.turn(timezone.now())
    log(other, 1)
    mirror.turn(timezone.now())
    assert sent(mlflow, other) == [1]
    assert [run["tags"]["tidepool.job"] for run in mlflow.runs.values()] == [str(other.pk)]


def test_a_run_that_was_made_and_not_noted_is_found_again(mirror, mlflow):
    job = JobFactory()
    mirror.turn(timezone.now())
    TrackedRun.objects.all().delete()
    Mirror(MlflowServer(mlflow.transport)).turn(timezone.now())
    assert len(mlflow.runs) == 1
    assert TrackedRun.objects.get(job=job).run_id in mlflow.runs


def test_a_run_that_mlflow_has_lost_is_made_again_from_the_beginning(mirror, mlflow):
    job = JobFactory()
    log(job, 1)
    mirror.turn(timezone.now())
    mlflow.runs.clear()
    log(job, 2)
    for _ in range(2):
        mirror.turn(timezone.now())
    assert sent(mlflow, job) == [1, 2]


def test_jobs_from_before_mlflow_become_runs_too(mirror, mlflow):
    jobs = [JobFactory() for _ in range(3)]
    assert mirror.turn(timezone.now()) is True
    assert mirror.turn(timezone.now()) is False
    assert TrackedRun.objects.count() == len(jobs)
