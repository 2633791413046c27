"""The importance of parameters: Optuna's PED-ANOVA of the finished trials."""

import math
import random

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from studies.importance import importance
from studies.samplers import PastTrial, Search
from studies.space import parse_space

SPACE = parse_space(
    {
        "lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1},
        "drop": {"kind": "uniform", "low": 0, "high": 1},
        "act": ["relu", "gelu"],
        "epochs": 5,
    }
)


def random_trials(count):
    rng = random.Random(0)
    points = [
        {"lr": 10 ** rng.uniform(-4, -1), "drop": rng.random(), "act": rng.choice(["relu", "gelu"]), "epochs": 5}
        for _ in range(count)
    ]
    return [
        PastTrial(n, point, "complete", (math.log10(point["lr"]) + 2) ** 2 + point["drop"] / 10)
        for n, point in enumerate(points)
    ]


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_importance_is_optunas(goal):
    trials = random_trials(100)
    study = optuna.create_study(direction=goal)
    distributions = {
        "act": CategoricalDistribution(("relu", "gelu")),
        "drop": FloatDistribution(0.0, 1.0),
        "lr": FloatDistribution(1e-4, 0.1, log=True),
    }
    for trial in trials:
        values = {name: value for name, value in trial.values.items() if name != "epochs"}
        study.add_trial(create_trial(value=trial.value, params=values, distributions=distributions))
    expected = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    found = importance(Search(SPACE, "random", goal, 0), trials)
    assert list(found.items()) == list(expected.items())
    assert next(iter(found)) == "lr"
    assert sum(found.values()) == pytest.approx(1)


def test_trials_that_have_not_finished_do_not_count():
    trials = random_trials(40)
    search = Search(SPACE, "random", "minimize", 0)
    more = [
        PastTrial(40, trials[0].values, "running"),
        PastTrial(41, trials[0].values, "pruned", None, {1 / 9: -5.0}),
        PastTrial(42, trials[0].values, "failed"),
        PastTrial(43, trials[0].values, "complete", math.nan),
    ]
    assert importance(search, [*trials, *more]) == importance(search, trials) != {}


@pytest.mark.parametrize(
    "trials",
    [[], random_trials(9), [PastTrial(n, t.values, "complete", 1.0) for n, t in enumerate(random_trials(50))]],
)
def test_no_importance_of_few_or_equal_trials(trials):
    assert importance(Search(SPACE, "random", "minimize", 0), trials) == {}
