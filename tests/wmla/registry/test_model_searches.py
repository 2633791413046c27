"""Searches for the hyperparameters of a model, row by row of WMLA's API."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.control.dispatch import launch_spec
from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup
from models_registry.models import RegisteredModel, RegisteredModelVersion
from studies.models import Study, Trial
from tests.factories import RegisteredModelVersionFactory
from tests.studies.conftest import end, turn
from tests.wmla.registry.deep_learning import BASE, ask, refusal
from wmla.hypersearch_names import name_of

pytestmark = pytest.mark.usefixtures("group", "model")

SEARCHES = "models/resnet/hypersearch"
ONE = f"{SEARCHES}/tuning"
GIVEN: dict[str, Any] = {
    "modelName": "resnet",
    "hpoName": "tuning",
    "hyperParams": [
        {"name": "learningrate", "type": "range", "dataType": "double", "minDbVal": 0.01, "maxDbVal": 0.1},
        {"name": "depth", "type": "discrete", "dataType": "int", "discreteIntVal": [2, 3]},
    ],
    "resDef": {"framework": "PyTorchOnElastic", "maxiteration": "4", "batchsize": 32, "workerNum": 2, "gpuNum": 1},
    "algoDef": {"algorithm": "Random", "maxJobNum": 2, "maxParalleJobNum": 2, "objective": "Minimize"},
}


@pytest.fixture
def study(alice_api: APIClient) -> Study:
    made = ask(alice_api, "POST", SEARCHES, GIVEN)
    assert made.status_code == 200, made.content
    return Study.objects.get()


@pytest.fixture
def over(study: Study) -> Study:
    """A search that is over, with the better value in its second experiment."""
    for number, trial in enumerate(running(turn(study))):
        end(trial, final_metrics={"loss": 0.5 - number / 10})
    return turn(study)


def running(study: Study) -> list[Trial]:
    return list(study.trials.filter(state=Trial.State.RUNNING).select_related("job__run").order_by("number"))


def test_a_search_is_an_ordinary_study_of_the_model(
    alice_api: APIClient, study: Study, alice: User, sig_id: str
) -> None:
    assert (study.owner, study.model.model.name, study.dialect) == (alice, "resnet", "on-prem")
    assert (study.metric, study.goal, study.trials_wanted, study.at_once) == ("loss", "minimize", 2, 2)
    assert study.options["max_slots"] == 2
    shown = ask(alice_api, "GET", ONE).json()
    assert set(shown) == {"input", "searchGrid", "state", "creator", "createtime", "sigId", "sigName", "consumerName"}
    assert shown["input"] == {name: GIVEN[name] for name in sorted(GIVEN)}
    assert (shown["state"], shown["creator"], shown["sigId"]) == ("SUBMITTED", "alice", sig_id)
    assert {**shown["searchGrid"], "duration": ""} == {
        "experiments": [],
        "best": None,
        "running": 0,
        "complete": 0,
        "failed": 0,
        "progress": "0/2",
        "duration": "",
    }
    assert ask(alice_api, "GET", f"{SEARCHES}/").json()[0]["input"] == shown["input"]
    assert alice_api.get(f"{BASE}hypersearch/tuning").json()["state"] == "SUBMITTED"


def test_a_setting_reaches_the_script_by_its_argument_and_all_by_the_file(study: Study) -> None:
    first, _ = running(turn(study))
    assert first.job is not None
    # The script declares `--lr`, and nothing for the others.
    assert launch_spec(first.job).arguments == ["--lr", str(first.values["learningrate"])]
    told = json.loads((job_folder(first.job).code / "config.json").read_text())
    assert told == {**first.values, "batch_size": 32, "epochs": 4}


def test_experiments_and_the_best_are_shown(alice_api: APIClient, over: Study) -> None:
    shown = ask(alice_api, "GET", ONE).json()
    assert (shown["state"], shown["searchGrid"]["progress"], shown["searchGrid"]["complete"]) == ("FINISHED", "2/2", 2)
    best = shown["searchGrid"]["best"]
    assert (best["id"], best["metricVal"]) == (1, 0.4)
    assert ask(alice_api, "GET", f"execs/{best['appId']}").status_code == 200


def test_stop_restart_and_delete(alice_api: APIClient, study: Study) -> None:
    turn(study)
    assert ask(alice_api, "DELETE", ONE).status_code == 409
    assert ask(alice_api, "PUT", f"{ONE}/stop").status_code == 200
    assert "already stopped" in refusal(ask(alice_api, "PUT", f"{ONE}/force"), 400)
    turn(study)
    assert ask(alice_api, "PUT", f"{ONE}/restart").json()["state"] == "RUNNING"
    assert ask(alice_api, "PUT", f"{ONE}/force").status_code == 204
    turn(study)
    assert ask(alice_api, "DELETE", ONE).status_code == 200
    assert ask(alice_api, "GET", ONE).status_code == 404


def test_the_best_values_become_the_next_version_or_another_model(
    alice_api: APIClient, code: Path, study: Study
) -> None:
    assert "No experiment of this search has a value yet" in refusal(ask(alice_api, "PUT", f"{ONE}/update"), 409)
    first, second = running(turn(study))
    end(first, final_metrics={"loss": 0.5})
    end(second, final_metrics={"loss": 0.4})
    turn(study)
    # The script takes no depth, so no parameter of its own could carry it.
    assert "depth is neither a setting nor an argument" in refusal(ask(alice_api, "PUT", f"{ONE}/update"), 400)
    Trial.objects.filter(study=study).update(values={"learningrate": 0.05})
    updated = ask(alice_api, "PUT", f"{ONE}/update")
    assert updated.status_code == 200, updated.content
    assert (updated.json()["version"], updated.json()["batchsize"]) == (2, 32)
    assert updated.json()["hyperparameter"] == {"learningrate": 0.05, "epoch": 4, "solvertype": "Adam"}
    made = ask(alice_api, "PUT", f"{ONE}/create/resnet-best")
    assert (made.status_code, made.json()["name"], made.json()["version"]) == (201, "resnet-best", 1)
    assert RegisteredModelVersion.objects.get(model__name="resnet-best").parameters == {"lr": 0.05}
    assert "already exists" in refusal(ask(alice_api, "PUT", f"{ONE}/create/resnet-best"), 409)


def test_experiments_of_a_grid_have_fixed_values(alice_api: APIClient) -> None:
    row = {"name": "learningrate", "dataType": "double", "fixedVal": "0.1"}
    grid = {
        **{name: value for name, value in GIVEN.items() if name != "hyperParams"},
        "algoDef": {"algorithm": "ExperimentGridSearch"},
        "experiments": [{"id": 7, "fixedHyperParams": [row]}],
    }
    assert ask(alice_api, "POST", SEARCHES, grid).status_code == 200
    turn(Study.objects.get())
    [experiment] = ask(alice_api, "GET", ONE).json()["searchGrid"]["experiments"]
    assert experiment["id"] == 7
    assert experiment["hyperParams"][0]["fixedVal"] == "0.1"


def test_hyperband_uses_the_length_of_a_training(alice_api: APIClient) -> None:
    given = {**GIVEN, "algoDef": {"algorithm": "Hyperband", "maxJobNum": 2}}
    assert ask(alice_api, "POST", SEARCHES, given).status_code == 200
    assert Study.objects.get().parameters == {"batch_size": 32, "epochs": 4}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hpoName": ""}, "hpoName is missing"),
        ({"resDef": None}, "resDef is missing"),
        ({"resDef": {"framework": "Caffe"}}, "Models are trained with PyTorch here"),
        ({"resDef": {"syncMode": "ASYNC"}}, "use SYNC"),
        ({"resDef": {"initWeightPath": "/w"}}, "leave initWeightPath out"),
        ({"resDef": {"batchsize": "many"}}, "batch_size is 'many': send a whole number above 0."),
        ({"resDef": {"workerNum": -1}}, "workerNum is -1: send a whole number above 0."),
        ({"resDef": {"resourceInstanceId": "none"}}, "Instance group none not found."),
        ({"resDef": {"workerNum": 99}}, "8 GPUs"),
        ({"algoDef": "Random"}, "data has no algoDef"),
        ({"algoDef": {"algorithm": "Magic"}}, "Algorithm 'Magic' is not known"),
        ({"algoDef": {"algorithm": "Hyperband", "algoParams": 3}}, "algoParams must be a list"),
        ({"hyperParams": []}, "hyperParams is empty"),
        ({"experiments": 3, "algoDef": {"algorithm": "ExperimentGridSearch"}}, "experiments must be a list"),
    ],
)
def test_what_does_not_fit_is_refused(alice_api: APIClient, change: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(ask(alice_api, "POST", SEARCHES, {**GIVEN, **change}), 400)
    assert not Study.objects.exists()


def test_searches_of_other_models_and_users_are_not_there(
    alice_api: APIClient, bob_api: APIClient, study: Study, group: InstanceGroup
) -> None:
    RegisteredModelVersionFactory(model__name="other", model__owner=study.owner)
    assert "Model other has no search tuning." in refusal(ask(alice_api, "GET", "models/other/hypersearch/tuning"), 404)
    assert ask(bob_api, "GET", SEARCHES).json() == []
    refusal(ask(bob_api, "GET", f"{SEARCHES}/{name_of(study)}"), 404)
    again = ask(alice_api, "POST", SEARCHES, GIVEN)
    assert "choose another hpoName" in refusal(again, 409)
    assert RegisteredModel.objects.count() == 2
