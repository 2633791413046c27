"""The JSON of a search: which study it becomes, and what is refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from core.errors import UserError
from models_registry.models import RegisteredModel
from studies.models import Study
from tests.wmla.conftest import text_of
from tests.wmla.searches import CLOUD_PAK, GRID, HYPERBAND, RANDOM, changed, post
from wmla.hypersearch_request import SearchRequest, parse_request


def parsed(request: Any = RANDOM, path: str = "", value: Any = None) -> SearchRequest:
    return parse_request(json.dumps(changed(request, path, value) if path else request))


def space_with(**values: Any) -> Any:
    """Return the distribution of a parameter like the notebooks' first one, with these values."""
    return parsed(RANDOM, "hyperParams.0", {**RANDOM["hyperParams"][0], **values}).space["learning_rate"]


def algorithm(name: str, *params: tuple[str, Any], request: Any = RANDOM, **others: Any) -> SearchRequest:
    sent = [{"name": key, "value": value} for key, value in params]
    return parsed(request, "algoDef", {**RANDOM["algoDef"], "algorithm": name, "algoParams": sent, **others})


class TestParameters:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"step": ""}, {"kind": "uniform", "low": 0.001, "high": 0.1}),
            ({"step": 0}, {"kind": "uniform", "low": 0.001, "high": 0.1}),
            ({"step": 0.002}, {"kind": "uniform", "low": 0.001, "high": 0.1, "step": 0.002}),
            (
                {"type": "range", "dataType": "double", "step": None},
                {"kind": "uniform", "low": 0.001, "high": 0.1},
            ),
            (
                {"dataType": "INT", "minIntVal": 2, "maxIntVal": 10, "step": "2"},
                {"kind": "int", "low": 2.0, "high": 10.0, "step": 2.0},
            ),
            (
                {"minDbVal": -2, "maxDbVal": 5, "power": 10, "step": None},
                {"kind": "log_uniform", "low": 0.01, "high": 100_000.0},
            ),
            ({"minDbVal": -2, "maxDbVal": 1, "power": "10", "step": "1"}, [0.01, 0.1, 1.0, 10.0]),
            (
                {"minDbVal": 1, "maxDbVal": 3, "power": 0.1, "step": 0},
                {"kind": "log_uniform", "low": pytest.approx(0.001), "high": 0.1},
            ),
            (
                {"dataType": "int", "minIntVal": 3, "maxIntVal": 6, "power": 2, "step": 0},
                {"kind": "log_int", "low": 8, "high": 64},
            ),
            ({"minDbVal": 0.1, "maxDbVal": 0.1, "step": 0}, 0.1),
            ({"type": "Discrete", "discreteDbVal": [0.1, "0.2", 0.1], "power": 10}, [0.1, 0.2]),
            ({"type": "DISCRETE", "dataType": "INT", "discreteIntVal": [1, 2.0]}, [1, 2]),
            ({"type": "Discrete", "dataType": "STRING", "discreateStrVal": ["Adam", 1]}, ["Adam", "1"]),
            ({"type": "Discrete", "dataType": "str", "discreteStrVal": ["SGD"]}, ["SGD"]),
            ({"type": "Fix", "dataType": "INT", "fixedVal": "64"}, 64),
            ({"type": "fix", "dataType": "STR", "fixedVal": 0.5}, "0.5"),
        ],
    )
    def test_each_kind_becomes_a_distribution(self, values: dict[str, Any], expected: Any) -> None:
        assert space_with(**values) == expected

    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            ({"type": "Normal"}, "its type is 'Normal': use Range, Discrete or Fix"),
            ({"type": None}, "its type is missing"),
            ({"dataType": "COMPLEX"}, "its dataType is 'COMPLEX': use DOUBLE, INT or STR"),
            ({"dataType": "STR"}, "a text has no range"),
            ({"minDbVal": 1}, "its range begins at 1 and ends at 0.1: swap them"),
            ({"minDbVal": "x"}, "minDbVal is 'x': send a finite number"),
            ({"maxDbVal": [1]}, "maxDbVal is [1]: send a finite number"),
            ({"step": -1}, "its step is -1"),
            ({"step": "5"}, "the step, 5, is larger than the range"),
            ({"power": -10}, "its power is -10: send the base"),
            ({"power": 10, "maxDbVal": 1e9, "step": 0}, "is too large"),
            ({"type": "Discrete"}, "it has no values: list them in discreteDbVal"),
            ({"type": "Discrete", "discreteDbVal": "0.1"}, "it has no values"),
            ({"type": "Discrete", "discreteDbVal": ["a"]}, "'a' is not a finite number"),
            ({"type": "Discrete", "dataType": "INT", "discreteIntVal": [1.5]}, "1.5 is not a whole number"),
            ({"type": "Fix"}, "it has no value: send fixedVal"),
            ({"name": "1st"}, "is not a valid parameter name"),
            ({"name": ""}, "has a parameter without a name"),
            ({"name": "optimizer"}, "names 'optimizer' twice"),
            ({"dataType": "INT", "minIntVal": 1, "maxIntVal": 10**300}, "must be a finite number of at most 9e15"),
        ],
    )
    def test_what_does_not_fit_is_refused_by_name(self, values: dict[str, Any], sentence: str) -> None:
        with pytest.raises(UserError) as refused:
            space_with(**values)
        assert sentence in refused.value.message


class TestAlgorithms:
    def test_tpe_has_wmlas_defaults(self) -> None:
        found = algorithm("TPE", ("RandomSeed", "7"), ("WarmUp", "5"), ("goodratio", 0.5))
        assert (found.algorithm.sampler, found.seed) == ("tpe", 7)
        assert found.sampler_options == {"warm_up": 5, "candidates": 24, "good_ratio": 0.5, "good_max": 25}

    def test_bayesian_is_a_gaussian_process_of_at_most_500(self) -> None:
        found = algorithm("Bayesian", ("Noiseless", "false"), ("CubeSize", "3"), maxJobNum=-1)
        assert (found.algorithm.sampler, found.trials) == ("gp", 500)
        assert found.sampler_options == {"init_points": 10, "noiseless": 0}
        with pytest.raises(UserError, match="gp takes at most 500 trials"):
            algorithm("Bayesian", maxJobNum=501)

    def test_hyperband_ends_with_its_brackets(self) -> None:
        resource = [("ResourceName", "epochs"), ("ResourceValue", "81")]
        assert algorithm("Hyperband", *resource, maxJobNum=-1).trials == 81 + 34 + 15 + 8 + 5
        assert algorithm("Hyperband", *resource, maxJobNum=10).trials == 10
        with pytest.raises(UserError, match="Eta is 4: Hyperband lets a third go on here"):
            algorithm("Hyperband", *resource, ("eta", 4))
        with pytest.raises(UserError, match="needs ResourceName and ResourceValue"):
            algorithm("Hyperband")
        with pytest.raises(UserError, match="learning_rate is the ResourceName, and in hyperParams"):
            algorithm("Hyperband", ("ResourceName", "learning_rate"), ("ResourceValue", 9))

    def test_parameters_of_another_algorithm_have_no_effect(self) -> None:
        assert algorithm("Random", ("WarmUp", "x"), ("Eta", 9)).sampler_options == {}
        with pytest.raises(UserError, match="algoParams has 'Temperature', which is not known"):
            algorithm("Random", ("Temperature", 1))

    def test_limits(self) -> None:
        found = algorithm("Random", maxRunTime=30, maxJobNum=-1, maxParalleJobNum="3", objective="Maximize")
        assert (found.minutes, found.trials, found.at_once, found.goal) == (30, None, 3, "maximize")
        found = parsed(RANDOM, "algoDef", {"algorithm": "random", "objectiveMetric": "loss", "objective": "MINIMIZE"})
        assert (found.minutes, found.trials, found.at_once, found.goal) == (None, None, 1, "minimize")


class TestExperiments:
    def test_the_space_is_what_they_have(self) -> None:
        found = parsed(GRID)
        assert found.space == {"learning_rate": [0.1, 0.2], "optimizer": ["Adam"], "beta1": [0.7]}
        assert [each.values for each in found.experiments][1] == {"learning_rate": 0.2, "optimizer": "Adam"}
        assert found.trials == 2

    def test_the_limit_takes_the_first_ones(self) -> None:
        assert [each.id for each in parsed(GRID, "algoDef.maxJobNum", 1).experiments] == [1]
        assert [each.id for each in parsed(GRID, "algoDef.maxJobNum", -1).experiments] == [1, 2]
        assert parsed(GRID, "algoDef.maxJobNum", 9).trials == 2

    def test_without_ids_they_are_counted(self) -> None:
        rows = [{"hyperParams": each["hyperParams"]} for each in GRID["experiments"]]
        assert [each.id for each in parsed(GRID, "experiments", rows).experiments] == [0, 1]

    @pytest.mark.parametrize(
        ("path", "value", "sentence"),
        [
            ("experiments", None, "experiments must be a list"),
            ("experiments", [], "experiments has 0 entries"),
            ("experiments", ["x"], "experiments must be a list"),
            ("experiments.0.id", 2, "experiments has the id 2 twice"),
            ("experiments.0.id", "first", "experiments has the id 'first'"),
            ("experiments.0.hyperParams", [], "Experiment 1 has no parameters"),
            ("experiments.0.hyperParams", None, "Experiment 1 has no list hyperParams"),
            ("experiments.0.hyperParams.1.name", "learning_rate", "Experiment 1 names 'learning_rate' twice"),
            ("experiments.0.hyperParams.0.fixedVal", "fast", "'fast' is not a finite number"),
            ("experiments.0.hyperParams.0.fixedVal", {}, "{} is not a finite number"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, path: str, value: Any, sentence: str) -> None:
        with pytest.raises(UserError) as refused:
            parsed(GRID, path, value)
        assert sentence in refused.value.message


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("algoDef.objective", "best", "objective is 'best': send minimize or maximize"),
        ("algoDef.objectiveMetric", "", "algoDef has no objectiveMetric"),
        ("algoDef.maxJobNum", 0, "maxJobNum is 0: send a whole number from 1"),
        ("algoDef.maxJobNum", 1.5, "maxJobNum is 1.5"),
        ("algoDef.maxRunTime", "soon", "maxRunTime is 'soon'"),
        ("algoDef.maxParalleJobNum", -2, "maxParalleJobNum is -2"),
        ("algoDef.algoParams", {}, None),
        ("algoDef.algoParams", ["x"], "algoParams must be a list"),
        ("algoDef.algoParams", [{"name": "RandomSeed", "value": -1}], "RandomSeed is -1"),
        ("algoDef", None, "data has no algoDef"),
        ("modelSpec", [], "data has no modelSpec"),
        ("modelSpec.args", 7, "args is 7: send a text"),
        ("hyperParams", None, "hyperParams must be a list"),
        ("hyperParams", [], "hyperParams is empty"),
        ("hyperParams", {"a": 1}, "hyperParams must be a list"),
        ("hyperParams", RANDOM["hyperParams"][1:2], None),
        ("hyperParams", [{"name": "x", "type": "Fix", "dataType": "INT", "fixedVal": 1}], "has one value only"),
        ("algoDef.extra", "\0", "data contains a NUL"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(path: str, value: Any, sentence: str | None) -> None:
    if sentence is None:
        parsed(RANDOM, path, value)
        return
    with pytest.raises(UserError) as refused:
        parsed(RANDOM, path, value)
    assert sentence in refused.value.message


EVIL = ["", "x", "[]", "null", "NaN", '{"modelSpec": NaN}', "[" * 100_000, '{"a":' * 5000, "9" * 5000, "\0", "{" + "}"]
VALUES: list[Any] = [None, -1, 10**30, 1e308, "", "\ud800", "x" * 100_000, [], [[]], {}, {"a": {}}, True, [None]]
PATHS = [
    *("modelSpec", "modelSpec.args", "modelSpec.sigName", "algoDef", "hyperParams", "hyperParams.0"),
    *(f"algoDef.{name}" for name in ("algorithm", "maxRunTime", "maxJobNum", "maxParalleJobNum", "objective")),
    *(f"algoDef.{name}" for name in ("objectiveMetric", "algoParams", "hyperbandEta")),
    *(f"hyperParams.0.{name}" for name in ("name", "type", "dataType", "minDbVal", "maxDbVal", "step", "power")),
]


@pytest.mark.parametrize("data", EVIL)
@pytest.mark.usefixtures("group", "data")
@pytest.mark.django_db
def test_what_is_no_definition_is_refused(alice_client: Client, home: Path, data: str) -> None:
    answer = post(alice_client, data)
    assert answer.status_code == 400
    assert text_of(answer).startswith("Error 400: data ")
    assert not RegisteredModel.objects.exists()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.usefixtures("group", "data")
@pytest.mark.django_db
def test_no_value_of_any_field_is_a_fault_of_the_server(alice_client: Client, path: str) -> None:
    for base in (RANDOM, HYPERBAND, CLOUD_PAK):
        for value in VALUES:
            request = changed(base, path, value)
            answer = alice_client.post("/platform/rest/deeplearning/v1/hypersearch", {"data": json.dumps(request)})
            # Without files, even a good definition ends here.
            assert answer.status_code == 400, (path, value, answer.content)
            assert text_of(answer).startswith("Error 400: ")
    assert not Study.objects.exists()
