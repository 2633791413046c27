"""Figures of a study, made from rows."""

from typing import Any

import pytest

from jobs.queries.metrics import Curve, Sample
from studies.figures import (
    MOST_CURVES,
    ShownTrial,
    best_so_far,
    curves_figure,
    drawn_trials,
    history_figure,
    importance_figure,
    parallel_axes,
    slice_figure,
    trials_with_curves,
)
from studies.space import Choice, Constant, Space, Uniform

SPACE: Space = {
    "epochs": Constant(5),
    "lr": Uniform(0.001, 0.1, log=True),
    "momentum": Uniform(0.0, 1000.0),
    "width": Choice((64, 32)),
}


def trial(number: int, state: str = "COMPLETE", value: float | None = None, **columns: Any) -> ShownTrial:
    values = {"lr": 0.01, "momentum": 0.5, "width": 32, "epochs": 5, **columns.pop("values", {})}
    return ShownTrial(number, state, value, values, **columns)


def traces(figure: dict[str, Any]) -> dict[str, Any]:
    return {trace["meta"]["kind"]: trace for trace in figure["data"]}


def meta(figure: dict[str, Any]) -> Any:
    return figure["layout"]["meta"]


TRIALS = [
    trial(0, value=0.5),
    trial(1, "PRUNED", 0.1),
    trial(2, "FAILED"),
    trial(3, value=0.7),
    trial(4, value=0.3),
    trial(5, "RUNNING"),
]


@pytest.mark.parametrize(("goal", "best"), [("minimize", [(0, 0.5), (4, 0.3)]), ("maximize", [(0, 0.5), (3, 0.7)])])
def test_only_complete_trials_are_the_best_so_far(goal: Any, best: list[tuple[int, float]]) -> None:
    assert best_so_far(TRIALS, goal) == best


def test_the_history_has_finished_trials_by_number() -> None:
    figure = history_figure(TRIALS, "minimize", "<loss>")
    drawn = traces(figure)
    assert (drawn["complete"]["x"], drawn["complete"]["y"]) == ([0, 3, 4], [0.5, 0.7, 0.3])
    assert (drawn["pruned"]["x"], drawn["pruned"]["y"]) == ([1], [0.1])
    assert (drawn["failed"]["x"], drawn["failed"]["yaxis"]) == ([2], "y2")
    assert (drawn["best"]["x"], drawn["best"]["y"]) == ([0, 4, 4], [0.5, 0.3, 0.3])
    assert drawn["pruned"]["text"][0].splitlines()[:2] == ["Trial 1: <loss> 0.1, pruned", "lr 0.01"]
    assert figure["layout"]["yaxis"]["title"]["text"] == "&lt;loss&gt;"
    assert meta(figure)["rows"][:3] == [[0, "Complete", 0.5, 0.5], [1, "Pruned", 0.1, 0.5], [2, "Failed", None, 0.5]]


def test_a_history_of_many_trials_is_thinned_and_says_so() -> None:
    trials = [trial(number, value=float(-number if number in (4001, 4003) else number)) for number in range(5000)]
    figure = history_figure(trials, "minimize", "loss")
    shown = traces(figure)["complete"]["x"]
    assert len(shown) < 2000
    assert {0, 3, 4001, 4003} <= set(shown)
    assert meta(figure)["note"] == "One of 3 trials is drawn, and each that was the best so far."
    assert len(meta(figure)["rows"]) == 5000


def test_of_many_trials_the_best_and_a_sample_are_drawn() -> None:
    trials = [trial(number, value=float(number)) for number in range(900)] + [trial(900, "WAITING")]
    drawn, note = drawn_trials(trials, "maximize")
    assert [one.number for one in drawn[:250]] == list(range(899, 649, -1))
    assert len({one.number for one in drawn}) == 500
    assert note == "The best 250 trials and a sample of 250 of the other 651."
    assert drawn_trials(trials[:500], "maximize")[1] == ""


def test_parallel_coordinates_have_the_parameters_that_differ_and_the_value() -> None:
    trials = [trial(0, value=1.0), trial(1, value=2.0, values={"lr": 0.05, "momentum": 900.0}), trial(2, "RUNNING")]
    axes = parallel_axes(trials, SPACE, "loss")
    assert [axis.column.name for axis in axes] == ["lr", "momentum", "loss"]
    assert [axis.scale and axis.scale.log for axis in axes] == [True, False, False]
    assert axes[-1].places == [0, 1, None]
    assert parallel_axes(trials[:1], SPACE, "loss") == []


def test_the_importance_says_from_when_on_it_is_there() -> None:
    assert meta(importance_figure({}, 0, 0))["empty"].endswith("from 10 finished trials on; none has finished.")
    assert meta(importance_figure({}, 0, 1))["empty"].endswith("; 1 has finished.")
    assert meta(importance_figure({}, 0, 9))["empty"].endswith("; 9 have finished.")
    assert "do not tell" in meta(importance_figure({}, 12, 12))["empty"]
    figure = importance_figure({"lr": 0.8, "<b>": 0.2}, 12, 14)
    [bars] = figure["data"]
    assert (bars["x"], bars["y"]) == ([20.0, 80.0], ["&lt;b&gt;", "lr"])
    assert meta(figure)["rows"] == [["<b>", 20.0], ["lr", 80.0]]
    assert "12 finished trials" in meta(figure)["note"]


def test_a_slice_has_a_place_for_each_parameter() -> None:
    figure = slice_figure(TRIALS, SPACE, "loss", "")
    assert meta(figure)["parameters"] == {
        "lr": {"type": "log"},
        "momentum": {"type": "linear"},
        "width": {"type": "category", "categoryorder": "array", "categoryarray": ["64", "32"]},
    }
    assert traces(figure)["complete"]["meta"]["xs"] == {"lr": [0.01] * 3, "momentum": [0.5] * 3, "width": ["32"] * 3}
    assert traces(figure)["pruned"]["y"] == [0.1]


def test_curves_are_those_of_the_best_trial_then_of_running_ones_then_of_the_next_best() -> None:
    over = [trial(number, value=float(number), job=100 + number) for number in range(30)]
    running = [trial(number, "RUNNING", job=100 + number) for number in range(30, 40)]
    pruned = [trial(40, "PRUNED", -1.0, job=140), trial(41, "WAITING")]
    chosen = [one.number for one in trials_with_curves([*over, *running, *pruned], "minimize")]
    assert chosen == [*range(10), *range(30, 40)]
    many = [trial(number, "RUNNING", job=100 + number) for number in range(30, 60)]
    chosen = [one.number for one in trials_with_curves([*over, *many], "minimize")]
    assert chosen == [0, *range(41, 60)]
    assert len(chosen) == MOST_CURVES


def test_a_curve_is_by_progress_and_needs_one() -> None:
    trials = [trial(0, value=1.0, job=1), trial(1, "RUNNING", job=2), trial(2, "RUNNING", job=3)]
    points = Curve([Sample(50, 2.0), Sample(100, float("nan")), Sample(200, 1.0)], 4)
    figure = curves_figure(trials, {1: (1.0, 200), 2: (None, 200), 3: (0.5, 400)}, {1: points, 2: points}, "loss")
    [curve] = figure["data"]
    assert (curve["name"], curve["x"], curve["y"]) == ("Trial 0", [25, 50, 100], [2.0, None, 1.0])
    assert meta(figure)["note"].endswith("with fewer points than were reported.")
    assert meta(curves_figure([], {}, {}, "loss"))["empty"] == "No trial has reported loss with a known progress yet."
