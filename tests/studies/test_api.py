from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from studies.models import Study, Trial
from tests.jobs.cluster import Cluster
from tests.studies.conftest import Create, turn

SPACE = {"lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1}, "width": [32, 64]}


@pytest.fixture
def wanted(cluster: Cluster, given: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: given[name] for name in ("model", "dataset", "instance_group")},
        "name": "widths",
        "space": SPACE,
        "metric": "loss",
        "trials": 4,
        "max_slots": 2,
        "priority": 7000,
    }


def over(study: Study, *values: float | None) -> None:
    """Give the study trials that are over, with these values; None: failed."""
    now = timezone.now()
    for number, value in enumerate(values):
        Trial.objects.create(
            study=study,
            number=number,
            values={"lr": 0.01 * (number + 1), "width": 32},
            state=Trial.State.FAILED if value is None else Trial.State.COMPLETE,
            value=value,
            why="KeyError: 'x'" if value is None else "",
            created_at=now,
            finished_at=now,
        )


def test_creates_a_study(alice_api: APIClient, wanted: dict[str, Any]) -> None:
    answer = alice_api.post("/api/v1/studies/", wanted, format="json")
    assert answer.status_code == 201, answer.json()
    made = answer.json()
    assert (made["state"], made["sampler"], made["goal"], made["space"]) == ("RUNNING", "tpe", "minimize", SPACE)
    study = turn(Study.objects.get(pk=made["id"]))
    job = study.trials.get(number=0).job
    assert job is not None
    assert (job.priority, job.max_slots, job.seed) == (7000, 2, 0)
    [listed] = alice_api.get("/api/v1/studies/").json()["results"]
    assert listed["counts"]["running"] == 4


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"space": {"lr": {"kind": "log_uniform", "low": 0, "high": 1}}}, "space", "begins above 0"),
        ({"space": []}, "space", "Give the space as an object"),
        ({"sampler": "magic"}, "sampler", ""),
        ({"pruner": "magic"}, "pruner", ""),
        ({"trials": 0}, "trials", "Enter 1 to 10,000 trials."),
        ({"trials": 10**12}, "trials", ""),
        ({"at_once": -1}, "at_once", "Enter a number above 0"),
        ({"gpu_hours": -0.5}, "gpu_hours", "Enter a number above 0"),
        ({"metric": " "}, "metric", ""),
        ({"metric": "a" * 300}, "metric", "Enter the name of a metric"),
        ({"model": "nobodys"}, "model", "not found"),
        ({"max_slots": 99}, "max_slots", "request at most 8"),
        ({"parameters": {"lr": 1}}, "space", "Remove one of the two"),
        ({"sampler": "grid"}, "space", "is continuous"),
        ({"sampler": "cmaes", "space": {"width": [1, 2]}}, "sampler", "only lists"),
        ({"sampler": "grid", "space": {"width": list(range(9))}}, "trials", "The grid has 9 points and `trials` is 4"),
        ({"colour": "red"}, "colour", ""),
        ({"seed": -1}, "seed", ""),
        ({"name": ""}, "name", ""),
    ],
)
def test_errors_name_the_field_and_store_nothing(
    alice_api: APIClient, wanted: dict[str, Any], changes: dict[str, Any], field: str, sentence: str
) -> None:
    for address in ("/api/v1/studies/", "/api/v1/studies/preview/"):
        answer = alice_api.post(address, {**wanted, **changes}, format="json")
        assert answer.status_code == 400, answer.json()
        assert sentence in " ".join(answer.json()["fields"][field])
    assert not Study.objects.exists()


def test_a_preview_stores_nothing(alice_api: APIClient, wanted: dict[str, Any]) -> None:
    told = alice_api.post("/api/v1/studies/preview/", {**wanted, "space": {"w": [1, 2]}, "trials": 9}, format="json")
    assert told.json() == {
        "trials": 9,
        "at_once": 9,
        "points": 2,
        "gpu_hours": None,
        "notices": [
            "The space has only 2 points and `trials` is 9: some would be tried repeatedly. The grid tries each once."
        ],
    }
    assert not Study.objects.exists()


def test_shows_the_best_and_the_trials(alice_api: APIClient, create: Create) -> None:
    study = create()
    over(study, 0.5, 0.2, None)
    told = alice_api.get(f"/api/v1/studies/{study.pk}/").json()
    assert told["counts"] == {"waiting": 0, "running": 0, "complete": 2, "pruned": 0, "failed": 1}
    assert told["best"]["number"] == 1
    assert told["best_text"] == "Trial 1 is the best: its last loss, 0.2, is the lowest (lr 0.02, width 32)."
    assert alice_api.get(f"/api/v1/studies/{study.pk}/best/").json()["value"] == 0.2
    rows = alice_api.get(f"/api/v1/studies/{study.pk}/trials/").json()["results"]
    assert [(row["number"], row["state"], row["why"]) for row in rows] == [
        (0, "COMPLETE", ""),
        (1, "COMPLETE", ""),
        (2, "FAILED", "KeyError: 'x'"),
    ]
    table = b"".join(alice_api.get(f"/api/v1/studies/{study.pk}/export.csv")).decode()  # type: ignore[arg-type]
    assert table.splitlines()[:2] == ["trial,training,state,value,lr,width,why", "0,,COMPLETE,0.5,0.01,32,"]
    assert alice_api.get(f"/api/v1/studies/{study.pk}/importance/").json() == {}


def test_without_a_complete_trial_there_is_no_best(alice_api: APIClient, create: Create) -> None:
    study = create()
    answer = alice_api.get(f"/api/v1/studies/{study.pk}/best/")
    assert (answer.status_code, answer.json()["error"]) == (404, "No trial of this study is complete yet.")
    assert alice_api.get(f"/api/v1/studies/{study.pk}/").json()["best_text"] == "No trial has a value."


def test_pauses_resumes_and_stops(alice_api: APIClient, create: Create) -> None:
    study = turn(create())
    address = f"/api/v1/studies/{study.pk}/"
    assert alice_api.post(f"{address}pause/").json()["state"] == "PAUSED"
    assert alice_api.post(f"{address}resume/").json()["state"] == "RUNNING"
    told = alice_api.post(f"{address}stop/").json()
    assert (told["state"], told["reason"]) == ("STOPPED", "Stopped by alice. No trial has a value.")
    turn(study)
    assert set(study.trials.values_list("state", "job__state")) == {("FAILED", "CANCELLED")}
    assert alice_api.post(f"{address}stop/").status_code == 200
    assert (
        alice_api.post(f"{address}enqueue/", {"values": [{"lr": 0.01, "width": 64}]}, format="json").status_code == 409
    )
    for verb in ("pause", "resume"):
        assert alice_api.post(f"{address}{verb}/").status_code == 409
    assert alice_api.delete(address).status_code == 204
    assert not Study.objects.exists()


def test_higher_limits_continue_a_finished_study(alice_api: APIClient, create: Create) -> None:
    study = create(trials=2)
    over(study, 0.5, 0.2)
    turn(study)
    assert study.state == Study.State.FINISHED
    told = alice_api.patch(f"/api/v1/studies/{study.pk}/", {"trials": 3, "priority": 6000}, format="json").json()
    assert (told["state"], told["trials"], told["finished_at"]) == ("RUNNING", 3, None)
    job = turn(study).trials.get(number=2).job
    assert job is not None
    assert job.priority == 6000


def test_the_priority_reaches_trials_that_train(
    alice_api: APIClient, create: Create, django_capture_on_commit_callbacks: Any
) -> None:
    study = turn(create())
    with django_capture_on_commit_callbacks(execute=True):
        alice_api.patch(f"/api/v1/studies/{study.pk}/", {"priority": 6000}, format="json")
    assert set(study.trials.values_list("job__priority", flat=True)) == {6000}


def test_queues_values_and_seeds(alice_api: APIClient, create: Create) -> None:
    study = create(trials=2)
    over(study, 0.5, 0.2)
    address = f"/api/v1/studies/{study.pk}/"
    made = alice_api.post(f"{address}enqueue/", {"values": [{"lr": 0.05, "width": 64}]}, format="json")
    assert [(row["number"], row["values"], row["origin"]) for row in made.json()] == [
        (2, {"lr": 0.05, "width": 64}, "user")
    ]
    refused = alice_api.post(f"{address}enqueue/", {"values": [{"lr": 5, "width": 64}]}, format="json")
    assert refused.status_code == 400
    assert refused.json()["fields"]["values"] == ["`lr`: '5' is not in the range from 0.0001 to 0.1."]
    alice_api.post(f"{address}seeds/", {"trial": 1, "count": 2}, format="json")
    alice_api.post(f"{address}seeds/", {"trial": 1, "count": 1}, format="json")
    assert list(study.trials.filter(origin="seed").values_list("job_seed", "values__lr")) == [
        (1, 0.02),
        (2, 0.02),
        (3, 0.02),
    ]
    assert alice_api.post(f"{address}seeds/", {"trial": 99}, format="json").status_code == 404
    study.refresh_from_db()
    assert study.trials_wanted == 6


def test_studies_of_others_do_not_exist(bob_api: APIClient, create: Create) -> None:
    study = create()
    for rest in ("", "trials/", "best/", "importance/", "export.csv"):
        assert bob_api.get(f"/api/v1/studies/{study.pk}/{rest}").status_code == 404
    for rest in ("pause/", "resume/", "stop/"):
        assert bob_api.post(f"/api/v1/studies/{study.pk}/{rest}").status_code == 404
    assert bob_api.get("/api/v1/studies/").json()["results"] == []


def test_the_list_takes_as_many_queries_for_many_studies(
    alice_api: APIClient, create: Create, django_assert_max_num_queries: Any
) -> None:
    for _ in range(4):
        over(create(), 0.5, 0.2)
    with django_assert_max_num_queries(5):
        assert len(alice_api.get("/api/v1/studies/").json()["results"]) == 4
