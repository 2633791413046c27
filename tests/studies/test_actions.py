"""Changes of studies by users that the API does not offer: lists of trials, other dialects, and restarts."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from core.errors import Conflict
from jobs.files.job_folder import job_folder
from jobs.models import Job
from jobs.states import Reason
from studies import actions
from studies.models import Study, Trial
from tests.studies.conftest import Create, end, turn

LIST = [{"lr": 0.1, "width": 32}, {"lr": 0.2}]
SPACE = {"lr": [0.1, 0.2], "width": [32]}


def running(study: Study) -> list[Trial]:
    return list(study.trials.filter(state=Trial.State.RUNNING).select_related("job").order_by("number"))


@pytest.fixture
def listed(create: Create) -> Study:
    """A study of two given trials, one after the other."""
    return create(sampler="grid", space=SPACE, queued=LIST, trials=2, at_once=1)


def test_given_trials_are_tried_in_their_order_and_no_others(listed: Study) -> None:
    tried = []
    for loss in (0.4, 0.3, 0.2):
        turn(listed)
        for trial in running(listed):
            assert trial.job is not None
            tried.append(trial.job.parameters)
            end(trial, final_metrics={"loss": loss})
    assert tried == LIST
    assert (listed.state, listed.trials.count()) == (Study.State.FINISHED, 2)


def test_a_script_of_another_dialect_gets_a_file_and_no_arguments(create: Create) -> None:
    asked = {"args": "--exec-start PyTorch --model-main main.py"}
    study = turn(create(dialect="cloud-pak", parameters={"epochs": "9"}, asked=asked, at_once=1))
    [trial] = running(study)
    job = trial.job
    assert job is not None
    assert (job.parameters, job.dialect, job.submitted_args) == ({}, "cloud-pak", asked["args"])
    assert job.environment == {"SUBID": "0"}
    assert json.loads((job_folder(job).code / "config.json").read_text()) == {**trial.values, "epochs": "9"}


def restarted(study: Study, user: User) -> list[dict[str, Any]]:
    """Stop the study, restart it, train all its trials, and return their values."""
    actions.stop(user, study.pk)
    turn(study)
    actions.restart(user, study.pk)
    tried = []
    for _ in range(4):
        turn(study)
        for trial in running(study):
            tried.append(trial.values)
            end(trial, final_metrics={"loss": 0.3})
    return tried


def test_a_restart_tries_again_what_was_stopped(listed: Study, alice: User) -> None:
    turn(listed)
    assert sorted(restarted(listed, alice), key=str) == sorted(LIST, key=str)
    assert listed.state == Study.State.FINISHED
    assert listed.trials.filter(origin=Trial.Origin.REPEAT).count() == 1


def test_a_restart_keeps_what_had_ended(create: Create, alice: User) -> None:
    study = turn(create(trials=3, at_once=2))
    first, second = running(study)
    end(first, final_metrics={"loss": 0.5})
    end(second, "FAILED", error={"kind": "KeyError", "message": "x"}, reason_code=Reason.EXIT_NONZERO)
    turn(study)
    assert len(restarted(study, alice)) == 1
    assert study.trials.filter(state=Trial.State.COMPLETE).count() == 2


def test_only_a_stopped_study_is_restarted(create: Create, alice: User) -> None:
    study = turn(create())
    with pytest.raises(Conflict, match="The study is not stopped"):
        actions.restart(alice, study.pk)
    Study.objects.filter(pk=study.pk).update(state=Study.State.STOPPED, finished_at=study.created_at)
    with pytest.raises(Conflict, match="still being stopped"):
        actions.restart(alice, study.pk)
    assert Job.objects.count() == 2
