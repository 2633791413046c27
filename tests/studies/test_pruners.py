"""Early stopping: Optuna's pruners, given the same reports, decide the same."""

import math
import random

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from studies.pruners import PRUNERS, bracket_of, judge, others_at, rungs_of, value_at
from studies.trials import PastTrial

SEED = 11
GOALS = ("minimize", "maximize")
JUDGING = [name for name in PRUNERS if name != "none"]
FINITE = st.floats(-1e9, 1e9)


def history(pruner, goal, *, steps, parts, nans, optunas_pruner, seed):
    """Yield (our decision, Optuna's) of each report of 60 trials that run six at a time."""
    numbers = random.Random(seed)
    study = optuna.create_study(study_name=str(SEED), direction=goal, pruner=optunas_pruner)
    rows: dict[int, PastTrial] = {}
    running: dict[int, tuple[optuna.Trial, list[int]]] = {}
    while len(rows) < 60 or running:
        if len(running) < 6 and len(rows) < 60:
            trial = study.ask()
            rows[trial.number] = PastTrial(trial.number, {}, "running")
            running[trial.number] = (trial, list(steps))
        number = numbers.choice(list(running))
        trial, left = running[number]
        step = left.pop(0)
        value = math.nan if numbers.random() < nans else round(numbers.random(), 2)
        trial.report(value, step)
        reported = {**rows[number].reported, step / parts: value}
        rows[number] = PastTrial(number, {}, "running", reported=reported)
        mine, rungs = rows[number], rungs_of(pruner, number, SEED)
        due = [rung for rung in rungs if math.isclose(rung, step / parts)]
        stops = False
        for rung in due:
            others = others_at(pruner, goal, rung, mine, rows.values(), seed=SEED)
            stops |= judge(pruner, goal, rung, value_at(pruner, goal, rung, reported), others).prunes
        theirs = trial.should_prune()
        yield stops, theirs
        if theirs or not left:
            ends = TrialState.PRUNED if theirs else TrialState.COMPLETE
            study.tell(trial, None if theirs else 0.5, state=ends)
            rows[number] = PastTrial(number, {}, "pruned" if theirs else "complete", reported=reported)
            del running[number]


def compare(decisions):
    ours, theirs = zip(*decisions, strict=True)
    assert ours == theirs
    assert any(theirs)
    assert not all(theirs)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("goal", GOALS)
def test_asha_is_optunas_successive_halving(goal, seed):
    optunas = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    compare(history("asha", goal, steps=(1, 3, 9), parts=27, nans=0.05, optunas_pruner=optunas, seed=seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("goal", GOALS)
def test_hyperband_is_optunas(goal, seed):
    optunas = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=27, reduction_factor=3)
    compare(history("hyperband", goal, steps=(1, 3, 9), parts=27, nans=0.05, optunas_pruner=optunas, seed=seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("goal", GOALS)
def test_median_is_optunas(goal, seed):
    optunas = optuna.pruners.MedianPruner(n_startup_trials=5)
    compare(history("median", goal, steps=range(1, 10), parts=10, nans=0, optunas_pruner=optunas, seed=seed))


def test_rungs_are_parts_of_progress():
    assert rungs_of("asha", 0, SEED) == (1 / 27, 1 / 9, 1 / 3)
    assert rungs_of("asha", 0, SEED, eta=2) == (1 / 8, 1 / 4, 1 / 2)
    assert rungs_of("none", 0, SEED) == ()
    rungs = {bracket_of("hyperband", n, SEED): rungs_of("hyperband", n, SEED) for n in range(100)}
    assert rungs == {0: (1 / 27, 1 / 9, 1 / 3), 1: (1 / 9, 1 / 3), 2: (1 / 3,), 3: ()}


@pytest.mark.parametrize("pruner", JUDGING)
@pytest.mark.parametrize("goal", GOALS)
@given(value=FINITE, others=st.lists(FINITE | st.sampled_from([math.nan, math.inf, -math.inf])))
def test_the_best_is_never_pruned(pruner, goal, value, others):
    finite = [other for other in others if math.isfinite(other)]
    best = (min if goal == "minimize" else max)([*finite, value])
    assert not judge(pruner, goal, 1 / 9, best, others).prunes


@pytest.mark.parametrize("pruner", JUDGING)
@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@given(others=st.lists(FINITE, max_size=8))
def test_what_is_no_number_is_always_pruned(pruner, goal, value, others):
    verdict = judge(pruner, goal, 1 / 9, value, others)
    assert verdict.prunes
    assert verdict.sentence == "The value after 1/9 is not a finite number."


@given(value=FINITE, others=st.lists(FINITE), eta=st.integers(2, 5))
def test_a_verdict_does_not_depend_on_the_sign(value, others, eta):
    lower = judge("asha", "minimize", 1 / 3, value, others, eta=eta)
    higher = judge("asha", "maximize", 1 / 3, -value, [-other for other in others], eta=eta)
    assert lower.prunes == higher.prunes


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            judge("asha", "minimize", 1 / 9, 0.41, [0.3, 0.31, 0.32, 0.325, 0.33] + [0.5] * 13),
            "",
        ),
        (
            judge("asha", "minimize", 1 / 9, 0.41, [0.3] * 7 + [0.33] + [0.5] * 15),
            "0.41 after 1/9 is not among the best third of 24 (0.33).",
        ),
        (
            judge("asha", "maximize", 1 / 9, 0.41, [0.5]),
            "0.41 after 1/9 is not the best of 2 (0.5).",
        ),
        (
            judge("hyperband", "maximize", 1 / 4, 0.41, [0.5] * 7, eta=4),
            "0.41 after 1/4 is not among the best quarter of 8 (0.5).",
        ),
        (
            judge("median", "minimize", 3 / 10, 0.41, [0.31, 0.32, 0.33, 0.5, 0.5]),
            "0.41 after 3/10 is worse than the median of 5 finished trials (0.33).",
        ),
        (judge("median", "minimize", 3 / 10, 0.41, [0.31, 0.32, 0.33, 0.35]), ""),
    ],
)
def test_a_verdict_says_why(verdict, sentence):
    assert verdict.sentence == sentence
    assert verdict.prunes == bool(sentence)


def test_the_first_report_at_a_rung_or_later_is_compared():
    reported = {0.1: 5.0, 0.2: 3.0, 0.4: 4.0}
    assert value_at("asha", "minimize", 1 / 27, reported) == 5.0
    assert value_at("asha", "minimize", 1 / 3, reported) == 4.0
    assert value_at("asha", "minimize", 1 / 2, reported) is None
    assert value_at("median", "minimize", 0.4, reported) == 3.0
    assert value_at("median", "maximize", 0.4, reported) == 5.0


def test_three_of_nine_epochs_reach_the_rung_at_a_third():
    assert value_at("asha", "minimize", 1 / 3, {0.33333333333: 1.0}) == 1.0


@pytest.mark.parametrize("pruner", ["none", "successive"])
def test_an_unknown_rule_judges_nothing(pruner):
    with pytest.raises(ValueError, match="does not judge trials"):
        judge(pruner, "minimize", 1 / 9, 1.0, [])
