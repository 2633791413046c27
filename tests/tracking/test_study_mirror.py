"""A study is a run of MLflow whose children are the runs of its trials."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.states import JobState
from studies.control.changes import changed, set_state
from studies.models import Study, Trial
from tests.example_study import example_study
from tests.factories import JobFactory
from tests.html import html_of
from tracking.mirror import Mirror
from tracking.models import TrackedRun, TrackedStudy
from tracking.runs import ensure_run
from tracking.upstream import MlflowServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(mlflow):
    return MlflowServer(mlflow.transport)


@pytest.fixture
def mirror(server):
    return Mirror(server)


@pytest.fixture
def study(alice):
    now = timezone.now()
    job = JobFactory(owner=alice, state=JobState.SUCCEEDED, started_at=now, finished_at=now)
    made = example_study(job, now)
    type(job).objects.filter(pk=job.pk).update(bundle=made.pk)
    return made


def add_trial(study, number):
    job = JobFactory(owner=study.owner, model=study.model, bundle=study.pk)
    values = {"learning_rate": 0.02, "width": 64}
    Trial.objects.create(study=study, number=number, job=job, values=values, state="RUNNING", created_at=timezone.now())
    changed(study.pk)
    return job


def test_a_study_is_the_parent_of_its_trials_in_their_experiment(mirror, mlflow, study):
    mirror.turn(timezone.now())
    run, child = mlflow.run_of_study(study.pk), mlflow.run_of(study.trials.get(number=1).job.pk)
    assert (child["tags"]["mlflow.parentRunId"], child["tags"]["tidepool.trial"]) == (run["id"], "1")
    assert child["experiment"] == run["experiment"]
    assert (run["name"], run["status"], run["owner"]) == ("Learning rates", "RUNNING", "alice")
    assert f"/studies/{study.pk}/" in run["tags"]["mlflow.note.content"]
    assert "mlflow.parentRunId" not in run["tags"]


def test_the_search_is_in_the_parameters_and_the_best_value_a_metric(mirror, mlflow, study):
    mirror.turn(timezone.now())
    run = mlflow.run_of_study(study.pk)
    assert run["params"].items() >= {
        ("tidepool/metric", "test_accuracy"),
        ("tidepool/goal", "maximize"),
        ("tidepool/sampler", "tpe"),
        ("tidepool/pruner", "asha"),
        ("tidepool/space/width", "[32, 64]"),
        ("tidepool/model", study.model.model.name),
    }
    assert [(each["key"], each["value"], each["step"]) for each in run["metrics"]] == [("best_test_accuracy", 96.4, 4)]
    assert (run["tags"]["tidepool.best_trial"], run["tags"]["tidepool.state"]) == ("1", "RUNNING")
    assert run["tags"]["tidepool.best_values"] == "learning_rate 0.009, width 32"


def test_a_better_trial_is_a_further_point_and_the_end_a_status(mirror, mlflow, study):
    mirror.turn(timezone.now())
    columns = {"state": "COMPLETE", "value": 97.5, "finished_at": timezone.now()}
    Trial.objects.filter(study=study, number=4).update(**columns)
    set_state(study, Study.State.FINISHED, "All 20 trials are over.", only=[Study.State.RUNNING])
    mirror.turn(timezone.now())
    run = mlflow.run_of_study(study.pk)
    assert [(each["value"], each["step"]) for each in run["metrics"]] == [(96.4, 4), (97.5, 5)]
    assert (run["status"], run["end_time"]) == ("FINISHED", int(study.finished_at.timestamp() * 1000))
    assert run["tags"]["tidepool.reason"] == "All 20 trials are over."


def test_nothing_is_sent_while_nothing_changes(mirror, mlflow, study):
    mirror.turn(timezone.now())
    mirror.turn(timezone.now() + timedelta(minutes=5))
    count = len(mlflow.calls)
    mirror.turn(timezone.now() + timedelta(minutes=5))
    assert len(mlflow.calls) == count


def test_a_script_that_asks_first_gets_a_child_at_once(mlflow, server, study):
    job = add_trial(study, 5)
    ensure_run(server, job)
    assert mlflow.run_of(job.pk)["tags"]["mlflow.parentRunId"] == TrackedStudy.objects.get().run_id


def test_runs_from_before_the_study_was_mirrored_become_children(mirror, mlflow, study):
    job = study.trials.get(number=1).job
    TrackedRun.objects.create(job=job, run_id="f" * 32, experiment_id="1", is_done=True)
    mlflow.runs["f" * 32] = {"owner": "alice", "tags": {"tidepool.job": str(job.pk)}, "metrics": [], "params": {}}
    mirror.turn(timezone.now())
    assert mlflow.run_of(job.pk)["tags"]["mlflow.parentRunId"] == mlflow.run_of_study(study.pk)["id"]


def test_a_study_that_mlflow_has_lost_is_made_again_with_its_children(mirror, mlflow, study):
    mirror.turn(timezone.now())
    lost = mlflow.run_of_study(study.pk)["id"]
    mlflow.runs[lost]["tags"]["tidepool.study"] = ""
    mlflow.runs[lost]["owner"] = "nobody"
    job = add_trial(study, 5)
    for _ in range(2):
        mirror.turn(timezone.now())
    [*_, made] = [run for run in mlflow.runs.values() if run["tags"].get("tidepool.study") == str(study.pk)]
    assert made["metrics"]
    for each in (job, study.trials.get(number=1).job):
        assert mlflow.run_of(each.pk)["tags"]["mlflow.parentRunId"] == mlflow.run_of_study(study.pk)["id"] != lost


def test_a_stopped_study_is_killed_and_a_paused_one_waits(mirror, mlflow, study):
    for state, status in ((Study.State.PAUSED, "SCHEDULED"), (Study.State.STOPPED, "KILLED")):
        set_state(study, state, "…", only=[study.state])
        mirror.turn(timezone.now())
        assert mlflow.run_of_study(study.pk)["status"] == status


def test_the_page_leads_to_the_run(mirror, mlflow, study, alice_client):
    assert "Open in MLflow" not in html_of(alice_client.get(f"/studies/{study.pk}/"))
    mirror.turn(timezone.now())
    run = mlflow.run_of_study(study.pk)
    address = f"/mlflow/#/experiments/{run['experiment']}/runs/{run['id']}"
    assert f'href="{address}"' in html_of(alice_client.get(f"/studies/{study.pk}/"))
