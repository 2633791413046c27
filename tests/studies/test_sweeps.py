"""Trainings with several values of a parameter, from the Train page."""

from typing import Any

import pytest
from django.test import Client

from jobs.models import Checkpoint, Job
from studies.actions import StudyChange, change_study
from studies.models import Study, Trial
from tests.html import html_of
from tests.studies.conftest import Create, end, turn

MANY = ", ".join(map(str, range(1, 120)))


def sent(client: Client, training: dict, **changes: object) -> Any:
    """Send the Train form."""
    compared = {"metric": "loss", "goal": "minimize"}
    return client.post("/jobs/new/", {**training, **compared, **changes}, follow=True)


def test_several_values_are_a_grid(training: dict, alices: Client) -> None:
    others = "rate = 0.1, 0.03\nwarm = true"
    answer = sent(alices, training, **{"parameter.epochs": "2, 4, 8"}, parameters=others, tags="night")
    study = Study.objects.get(name="mine")
    assert answer.redirect_chain == [(f"/studies/{study.pk}/", 302)]
    assert study.space == {"epochs": [2, 4, 8], "rate": [0.1, 0.03]}
    assert (study.sampler, study.trials_wanted, study.metric, study.goal) == ("grid", 6, "loss", "minimize")
    assert (study.parameters, study.tags) == ({"warm": True}, ["night"])
    assert study.options["max_slots"] == int(training["max_slots"])
    assert not Job.objects.filter(name="mine").exists(), "the controller submits the trainings"


@pytest.mark.parametrize(
    ("changes", "where", "sentence"),
    [
        ({"parameter.epochs": "2, many"}, "parameters", "The parameter epochs must be a number, such as 20."),
        ({"parameter.epochs": "2, 4", "metric": ""}, "metric", "Fill in this field."),
        ({"parameter.epochs": "2, 2"}, "__all__", "`epochs`: '2' is listed twice"),
        ({"parameter.epochs": MANY, "parameters": f"rate = {MANY}"}, "parameters", "make 14,161 trainings: list fewer"),
        ({"parameter.epochs": "2, 4", "max_slots": "99"}, "max_slots", "request at most 8, not 99."),
    ],
)  # fmt: skip
def test_an_error_keeps_the_lists(
    training: dict, alices: Client, changes: dict[str, str], where: str, sentence: str
) -> None:
    answer = sent(alices, training, **changes)
    assert sentence in " ".join(answer.context["form"].errors.get(where, [])), answer.context["form"].errors
    assert answer.context["typed_parameters"]["values"]["epochs"] == changes["parameter.epochs"]
    assert not Study.objects.filter(name="mine").exists()


def test_a_list_of_words_stays_one_text(training: dict, alices: Client) -> None:
    sent(alices, training, parameters="layers = conv, dense\nname = a,b")
    assert Job.objects.get(name="mine").parameters == {"layers": "conv, dense", "name": "a,b"}


def test_a_sweep_starts_from_scratch(training: dict, alices: Client) -> None:
    start = f"checkpoint-{Checkpoint.objects.filter(problem='').values_list('pk', flat=True)[0]}"
    answer = sent(alices, training, **{"parameter.epochs": "2, 4"}, start_from=start)
    assert "epochs: with several values, trainings start from scratch." in html_of(answer)


def test_the_preview_counts_the_trainings(training: dict, alices: Client) -> None:
    compared = {"metric": "loss", "goal": "minimize"}
    one = alices.post("/jobs/new/preview/", {**training, **compared, "parameter.epochs": "4"}).json()["preview"]
    several = {**training, **compared, "parameter.epochs": "2, 4, 8", "parameters": "rate = 0.1, 0.03"}
    seen = alices.post("/jobs/new/preview/", several).json()["preview"]
    assert one["sweep_text"] == ""
    assert seen["sweep_text"].startswith("6 trainings, one for each combination of values (3 of epochs, 2 of rate)")
    assert seen["target_slots"] == one["target_slots"]


def test_another_metric_judges_the_trials_again(create: Create, alice: Any) -> None:
    study = turn(create(metric="acc", trials=2))
    first, second = study.trials.order_by("number")
    end(first, "SUCCEEDED", final_metrics={"loss": 0.5, "other": 3.0})
    study = turn(study)
    assert (study.state, study.reason) == ("PAUSED", "No trial reports acc. Reported were loss, other.")
    change_study(alice, study.pk, StudyChange(metric="loss"))
    first.refresh_from_db()
    assert (first.state, first.value, first.why) == (Trial.State.COMPLETE, 0.5, "")
    end(second, "SUCCEEDED", final_metrics={"loss": 0.25})
    study = turn(study)
    second.refresh_from_db()
    assert (second.state, second.value) == (Trial.State.COMPLETE, 0.25)
