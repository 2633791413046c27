"""Proposals: those of an Optuna study that lives, though each one is made from rows alone."""

import json
import math
import random
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import NormalDist

import optuna
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from core.errors import UserError
from studies.samplers import SAMPLERS, PastTrial, Proposal, Search, check_search, propose, seed_of
from studies.space import grid_point, parse_space

ROOT = Path(__file__).resolve().parent.parent.parent
NUMBERS = {
    "drop": {"kind": "uniform", "low": 0, "high": 0.5, "step": 0.1},
    "layers": {"kind": "int", "low": 1, "high": 8},
    "lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1},
    "noise": {"kind": "normal", "mean": 0, "deviation": 1, "step": 0.5},
}
SPACE = parse_space({**NUMBERS, "width": [32, 64, 128], "epochs": 5})
#: The space as users of Optuna would write it.
DISTRIBUTIONS = {
    "drop": FloatDistribution(0.0, 0.5, step=0.1),
    "layers": IntDistribution(1, 8),
    "lr": FloatDistribution(1e-4, 0.1, log=True),
    # The quantile: Optuna has no normal distribution.
    "noise": FloatDistribution(NormalDist().cdf(-4), NormalDist().cdf(4)),
    "width": CategoricalDistribution((32, 64, 128)),
}
#: Sampler -> Optuna's class with the options that we mean by it, our options, and a number of trials.
SAME = {
    "random": (lambda seed: optuna.samplers.RandomSampler(seed=seed), {}, 40),
    "tpe": (lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True), {}, 40),
    "cmaes": (lambda seed: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False), {}, 40),
    "gp": (lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=5), {"init_points": 5}, 10),
}


def objective(values):
    return (
        (math.log10(values["lr"]) + 2) ** 2
        + values["drop"]
        + abs(values["layers"] - 3) / 4
        + values["width"] / 99
        + values["noise"]
    )


def stored(trial):
    """Return the trial as a column of JSON returns it: with other types and in another order."""
    kept = json.loads(json.dumps({"values": trial.values, "attributes": trial.attributes}, sort_keys=True))
    return replace(trial, **kept)


def ended(trial, rng, shares):
    """Return the trial in a state in which trials end. `shares`: how often it is complete, pruned and failed."""
    value = objective(trial.values)
    state = rng.choices(["complete", "pruned", "failed"], shares)[0]
    return replace(
        trial,
        state=state,
        value=value if state == "complete" else None,
        reported={} if state == "failed" else {1 / 27: round(value + 1, 3), 1 / 9: round(value, 3)},
    )


def tell(study, ours):
    """Tell Optuna's study how the trial ended."""
    theirs = optuna.trial.Trial(study, ours.number)
    for progress, value in ours.reported.items():
        theirs.report(value, round(progress * 1_000_000))
    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    study.tell(ours.number, ours.value, state=states[ours.state])


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize(("at_once", "shares"), [(1, (8, 2, 1)), (4, (8, 2, 1)), (2, (0, 9, 1))])
@pytest.mark.parametrize("sampler", SAME)
def test_proposals_are_those_of_a_living_study(sampler, at_once, shares, goal):
    optunas, options, count = SAME[sampler]
    search = Search(SPACE, sampler, goal, seed=3, options=options)
    study, rng = optuna.create_study(direction=goal), random.Random(at_once)
    rows: list[PastTrial] = []
    for number in range(count):
        study.sampler = optunas(seed_of(3, number))
        proposal = propose(search, rows, number)
        assert proposal is not None
        drawn = study.ask(DISTRIBUTIONS).params
        exact = {name: value for name, value in proposal.values.items() if name != "epochs"}
        exact["noise"] = NormalDist().cdf(exact["noise"])
        assert exact | proposal.attributes.get("drawn", {}) == drawn
        noise = round(NormalDist().inv_cdf(drawn["noise"]) / 0.5) * 0.5
        assert proposal.values == pytest.approx(drawn | {"epochs": 5, "noise": noise})
        rows.append(stored(PastTrial(number, proposal.values, "running", attributes=proposal.attributes)))
        running = [trial for trial in rows if trial.state == "running"]
        if len(running) == at_once:
            done = ended(rng.choice(running), rng, shares)
            rows[done.number] = done
            tell(study, done)


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_proposals_are_the_same_in_each_process(sampler):
    search = Search(SPACE, sampler, "minimize", seed=5)
    rows = []
    for number in range(20):
        proposal = propose(search, rows, number)
        rows.append(PastTrial(number, proposal.values, "complete", objective(proposal.values), {}, proposal.attributes))
    code = "import json, sys; from studies.samplers import *; from tests.studies.test_samplers import SPACE\n"
    code += "rows = [PastTrial(**row) for row in json.load(sys.stdin)]\n"
    code += f"proposal = propose(Search(SPACE, {sampler!r}, 'minimize', seed=5), rows, 20)\n"
    code += "print(json.dumps([proposal.values, proposal.attributes], sort_keys=True))"
    answers = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            check=True,
            timeout=300,
            cwd=ROOT,
            input=json.dumps([asdict(row) for row in rows]),
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}"},
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    proposal = propose(search, rows, 20)
    for values, attributes in map(json.loads, answers):
        # CMA-ES decomposes matrices, whose last bits depend on where in memory they lie.
        assert values == pytest.approx(proposal.values, rel=1e-12, abs=0)
        assert attributes == proposal.attributes


def test_another_seed_gives_other_proposals():
    proposals = [propose(Search(SPACE, "random", "minimize", seed), [], 0) for seed in range(20)]
    assert len({proposal.values["lr"] for proposal in proposals}) == 20
    assert len({propose(Search(SPACE, "random", "minimize", 1), [], n).values["lr"] for n in range(20)}) == 20


def test_pages_and_the_api_do_not_load_optuna():
    code = "import studies.samplers, studies.pruners, studies.importance, sys; sys.exit('optuna' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_every_kind_of_parameter_keeps_to_its_space(sampler):
    space = parse_space(
        {
            "batch": {"kind": "log_int", "low": 1, "high": 512},
            "id": {"kind": "int", "low": -(2**53), "high": 2**53},
            "fine": {"kind": "uniform", "low": 0, "high": 1, "step": 1e-8},
            "eighths": {"kind": "log_int", "low": 8, "high": 100, "step": 8},
            "coarse": {"kind": "log_uniform", "low": 0.1, "high": 1, "step": 0.2},
            "noise": {"kind": "normal", "mean": 5, "deviation": 2},
            "rounded": {"kind": "normal", "mean": 0.5, "deviation": 1, "step": 0.25},
            "scale": {"kind": "log_normal", "mean": -1, "deviation": 0.5},
            "flag": [True, False],
            "mixed": ["a", 1.5, 2, False],
            "text": "fixed",
        }
    )
    rows = []
    for number in range(30):
        proposal = propose(Search(space, sampler, "minimize", seed=1), rows, number)
        assert list(proposal.values) == list(space)
        assert [name for name, value in proposal.values.items() if not space[name].contains(value)] == []
        assert type(proposal.values["id"]) is type(proposal.values["eighths"]) is int
        assert proposal.values["eighths"] % 8 == 0
        value = abs(proposal.values["noise"] - 5) + proposal.values["scale"]
        rows.append(stored(PastTrial(number, proposal.values, "complete", value, {}, proposal.attributes)))
    assert len({row.values["id"] for row in rows}) == 30
    assert {row.values["eighths"] for row in rows} <= set(range(8, 97, 8))


def test_normal_parameters_are_normally_distributed():
    space = parse_space({"x": {"kind": "normal", "mean": 10, "deviation": 2}})
    values = [propose(Search(space, "random", "minimize", seed=1), [], n).values["x"] for n in range(200)]
    assert sum(8 < value < 12 for value in values) == pytest.approx(200 * 0.683, abs=20)
    assert all(2 <= value <= 18 for value in values)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_what_is_no_number_counts_as_failed(sampler, value):
    search = Search(SPACE, sampler, "minimize", seed=2, options={"warm_up": 5})
    rows = [PastTrial(n, propose(search, [], n).values, "complete", float(n), {1: float(n)}) for n in range(9)]
    strange = replace(rows[8], value=value)
    failed = replace(rows[8], state="failed", value=None)
    assert propose(search, [*rows[:8], strange], 9) == propose(search, [*rows[:8], failed], 9)


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_a_pruned_trial_that_reported_infinity_is_no_better_than_nan(value, goal):
    search = Search(SPACE, "tpe", goal, seed=2, options={"warm_up": 5})
    rows = [PastTrial(n, propose(search, [], n).values, "pruned", None, {1 / 9: float(n)}) for n in range(8)]
    strange, nan = (replace(rows[3], reported={1 / 9: each}) for each in (value, math.nan))
    assert propose(search, [*rows[:3], strange, *rows[4:]], 8) == propose(search, [*rows[:3], nan, *rows[4:]], 8)


def test_running_trials_are_avoided():
    space = parse_space({"x": {"kind": "uniform", "low": 0, "high": 1}})
    search = Search(space, "tpe", "minimize", seed=4, options={"warm_up": 5})
    rows = [PastTrial(n, {"x": n / 10}, "complete", n / 10) for n in range(10)]
    alone = propose(search, rows, 10).values["x"]
    crowd = [PastTrial(n, {"x": alone}, "running") for n in range(10, 20)]
    beside = [propose(search, [*rows, *crowd], 20).values["x"], propose(search, [*rows, *crowd[:1]], 11).values["x"]]
    assert all(abs(x - alone) > 1e-6 for x in beside)


def test_a_value_outside_the_space_teaches_nothing():
    search = Search(SPACE, "tpe", "minimize", seed=2, options={"warm_up": 2})
    rows = [PastTrial(n, propose(search, [], n).values, "complete", float(n)) for n in range(5)]
    outside = PastTrial(5, {**rows[0].values, "lr": 7.0}, "complete", -100.0)
    failed = PastTrial(5, rows[0].values, "failed")
    assert propose(search, [*rows, outside], 6) == propose(search, [*rows, failed], 6)


def test_a_number_without_a_trial_is_a_failed_one():
    search = Search(SPACE, "random", "minimize", seed=2)
    assert propose(search, [], 7) == propose(search, [PastTrial(3, {}, "failed")], 7)


def test_no_row_is_unpickled():
    """CMA-ES keeps its state as JSON; what looks like Optuna's own pickle is not read."""
    search = Search(SPACE, "cmaes", "minimize", seed=1)
    rows = []
    for number in range(20):
        proposal = propose(search, rows, number)
        hostile = {"cma:optimizer:0": "63706f736978", **proposal.attributes}
        rows.append(PastTrial(number, proposal.values, "complete", objective(proposal.values), {}, hostile))
    states = [row.attributes["cma:state"] for row in rows if "cma:state" in row.attributes]
    assert len(states) > 1
    assert "pickle" not in json.dumps(rows[-1].attributes, allow_nan=False)


def test_a_grid_proposes_each_point_once_and_ends():
    space = parse_space({"a": [1, 2], "b": {"kind": "int", "low": 1, "high": 3}, "c": "x"})
    search = Search(space, "grid", "minimize", seed=0)
    rows = [PastTrial(0, grid_point(space, 2), "failed")]
    while (proposal := propose(search, rows, len(rows))) is not None:
        rows.append(stored(PastTrial(len(rows), proposal.values, "running")))
    assert [row.values for row in rows] == [grid_point(space, n) for n in (2, 0, 1, 3, 4, 5)]


def test_an_unknown_sampler_proposes_nothing():
    with pytest.raises(ValueError, match="is not a sampler: use one of tpe, random, grid, cmaes, gp"):
        propose(Search(SPACE, "anneal", "minimize", 0), [], 0)


GRID = parse_space({"a": list(range(200)), "b": list(range(200))})
LISTS = parse_space({"a": [1, 2], "b": ["x", "y"]})
MIXED = parse_space({"a": [1, 2], "b": {"kind": "int", "low": 1, "high": 9}})


@pytest.mark.parametrize(
    ("search", "trials", "field", "sentence"),
    [
        (
            Search(GRID, "grid", "minimize", 0),
            60,
            "trials",
            "The grid has 40,000 points and `trials` is 60: the first 60 would be tried. Raise `trials`, or use "
            "random.",
        ),
        (
            Search(SPACE, "grid", "minimize", 0),
            60,
            "space",
            "`lr` is continuous, and a grid needs points: give it a `step` or a list, or use random.",
        ),
        (
            Search(LISTS, "cmaes", "minimize", 0),
            60,
            "sampler",
            "cmaes varies numbers in ranges, and the space has only lists: give a range, or use tpe.",
        ),
        (
            Search(MIXED, "gp", "minimize", 0),
            501,
            "trials",
            "gp takes at most 500 trials, for its cost grows fast. Lower `trials`, or use tpe.",
        ),
        (
            Search(MIXED, "gp", "minimize", 0),
            None,
            "trials",
            "gp takes at most 500 trials, for its cost grows fast. Lower `trials`, or use tpe.",
        ),
        (
            Search(MIXED, "anneal", "minimize", 0),
            10,
            "sampler",
            "There is no such sampler: use one of tpe, random, grid, cmaes, gp.",
        ),
        (Search(MIXED, "tpe", "best", 0), 10, "goal", "Choose minimize or maximize."),
        (
            Search(parse_space({"a": 1, "b": [2]}), "tpe", "minimize", 0),
            10,
            "space",
            "Each parameter has one value only: give a list or a range for at least one.",
        ),
        (
            Search(MIXED, "tpe", "minimize", 0, {"warmup": 3}),
            10,
            "options",
            "'warmup' is not an option of tpe: it has warm_up, candidates, good_ratio, good_max.",
        ),
        (
            Search(MIXED, "random", "minimize", 0, {"warm_up": 3}),
            10,
            "options",
            "'warm_up' is not an option of random: it has none.",
        ),
        (
            Search(MIXED, "tpe", "minimize", 0, {"warm_up": 2.5}),
            10,
            "options",
            "`warm_up` must be a whole number from 1 to 10000.",
        ),
        (
            Search(MIXED, "tpe", "minimize", 0, {"good_ratio": math.nan}),
            10,
            "options",
            "`good_ratio` must be a number from 0.001 to 1.",
        ),
        (
            Search(MIXED, "tpe", "minimize", 0, {"candidates": 10**400}),
            10,
            "options",
            "`candidates` must be a whole number from 1 to 10000.",
        ),
    ],
)
def test_a_search_that_cannot_work_is_refused(search, trials, field, sentence):
    with pytest.raises(UserError) as caught:
        check_search(search, trials)
    assert caught.value.fields == {field: [sentence]}


@pytest.mark.parametrize(
    ("search", "trials", "pruner", "notices"),
    [
        (Search(SPACE, "tpe", "minimize", 0), 60, "asha", []),
        (Search(SPACE, "tpe", "minimize", 0, {"warm_up": 20, "candidates": 24, "good_ratio": 0.25}), None, "asha", []),
        (Search(MIXED, "grid", "minimize", 0), 18, "none", []),
        (
            Search(MIXED, "gp", "minimize", 0),
            18,
            "none",
            ["gp takes some seconds of a processor for each proposal; tpe takes a tenth of one."],
        ),
        (Search(MIXED, "grid", "minimize", 0), 60, "none", ["The grid has 18 points: the study ends after them."]),
        (Search(MIXED, "grid", "minimize", 0), None, "none", ["The grid has 18 points: the study ends after them."]),
        (
            Search(MIXED, "random", "minimize", 0),
            60,
            "none",
            [
                "The space has only 18 points and `trials` is 60: some would be tried repeatedly. The grid tries each "
                "once."
            ],
        ),
        (
            Search(MIXED, "cmaes", "minimize", 0),
            10,
            "asha",
            [
                "cmaes varies numbers in ranges: it draws `a` at random.",
                "cmaes learns from finished trials only: those that asha stops do not count.",
            ],
        ),
    ],
)
def test_notices_of_a_search_that_works(search, trials, pruner, notices):
    assert check_search(search, trials, pruner=pruner) == notices


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_first_proposal_needs_no_trial(sampler):
    assert isinstance(propose(Search(MIXED, sampler, "maximize", 0), [], 0), Proposal)


def test_options_reach_the_sampler():
    """With as many good trials as there are trials, TPE differs from the usual; with its usual numbers, it does not."""
    rows = [
        PastTrial(n, propose(Search(SPACE, "random", "minimize", 1), [], n).values, "complete", float(n))
        for n in range(30)
    ]
    usual = propose(Search(SPACE, "tpe", "minimize", 1), rows, 30)
    same = {"warm_up": 10, "candidates": 24, "good_ratio": 0.1, "good_max": 25}
    assert propose(Search(SPACE, "tpe", "minimize", 1, same), rows, 30) == usual
    for other in ({"warm_up": 50}, {"candidates": 2}, {"good_ratio": 0.5}):
        assert propose(Search(SPACE, "tpe", "minimize", 1, same | other), rows, 30) != usual


#: Numbers at the limits of what a space may contain.
EXTREME = st.sampled_from([0, 1, -1, 3, 0.1, 1e-300, 1e-200, 1e-9, 1.0000001, 1e6, 9e15, -9e15, 2**53, 2**53 - 1])
RANGES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["uniform", "log_uniform", "int", "log_int"]), "low": EXTREME, "high": EXTREME},
    optional={"step": EXTREME},
)
NORMALS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["normal", "log_normal"]), "mean": EXTREME, "deviation": EXTREME},
    optional={"step": EXTREME},
)


@settings(max_examples=25, deadline=None)
@given(st.lists(RANGES | NORMALS | st.just([1, "a"]), min_size=1, max_size=3), st.sampled_from(["tpe", "cmaes"]))
def test_samplers_can_search_every_space_that_is_accepted(parameters, sampler):
    space = {}
    for number, parameter in enumerate(parameters):
        with suppress(UserError):
            space |= parse_space({f"p{number}": parameter})
    assume(space)
    search = Search(space, sampler, "minimize", 0, {"warm_up": 2})
    rows = []
    for number, value in enumerate([1e308, -1e308, 0.0, 0.0, 1.0]):
        proposal = propose(search, rows, number)
        assert [name for name in space if not space[name].contains(proposal.values[name])] == []
        json.dumps([proposal.values, proposal.attributes], allow_nan=False)
        rows.append(stored(PastTrial(number, proposal.values, "complete", value, {}, proposal.attributes)))
