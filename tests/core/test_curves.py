"""The curves of a training as the server makes them."""

import json
from datetime import UTC, datetime

import pytest

from jobs.queries.curves import MAX_LINES, MAX_METRICS, curves_figure, held_out_part, rows_of
from jobs.queries.metrics import Curve, Sample

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def keys(names: list[str]) -> dict[str, list[str]]:
    return {row.key: list(row.lines) for row in rows_of(names)[0]}


def test_held_out_metrics_are_lines_of_their_own_beside_those_of_training() -> None:
    assert keys(["test_loss", "accuracy", "loss", "val_accuracy"]) == {
        "loss": ["loss", "test_loss"],
        "accuracy": ["accuracy", "val_accuracy"],
    }


def test_two_lines_of_a_row_never_have_the_same_name() -> None:
    [row], _ = rows_of(["loss", "val_loss", "valid_loss", "test_loss"])

    assert row.lines == {
        "loss": "Training loss",
        "test_loss": "Test loss",
        "val_loss": "Validation loss (val_loss)",
        "valid_loss": "Validation loss (valid_loss)",
    }


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("loss", ("", "loss")),
        ("test_loss", ("Test", "loss")),
        ("validation_f1", ("Validation", "f1")),
        ("test_", ("", "test_")),
        ("testing", ("", "testing")),
    ],
)
def test_what_a_metric_was_measured_on(name: str, part: tuple[str, str]) -> None:
    assert held_out_part(name) == part


def test_each_optimizer_has_a_line_and_the_first_is_not_drawn_twice() -> None:
    names = ["learning_rate", "learning_rate/body", "learning_rate/head", "samples_per_second", "loss"]

    assert keys(names) == {
        "loss": ["loss"],
        "samples_per_second": ["samples_per_second"],
        "learning_rate": ["learning_rate/body", "learning_rate/head"],
    }


def test_what_is_too_much_for_the_browser_is_named() -> None:
    rows, left_out = rows_of(["loss", *(f"metric_{number:02}" for number in range(20))])

    assert sum(len(row.lines) for row in rows) == MAX_LINES
    assert rows[0].key == "loss"
    assert left_out == [f"metric_{number:02}" for number in range(MAX_LINES - 1, 20)]


def test_what_is_no_number_is_a_gap() -> None:
    figure = curves_figure({"loss": Curve([Sample(1, 2.0, AT), Sample(2, None, AT), Sample(3, 1.0, AT)])}, "/x")

    [loss] = figure["data"]
    assert (loss["x"], loss["y"], loss["connectgaps"]) == ([1, 2, 3], [2.0, None, 1.0], False)
    assert loss["customdata"] == [[AT.timestamp() * 1000, 0]] * 3
    assert "NaN" not in json.dumps(figure)


def test_all_rows_are_on_the_same_steps() -> None:
    figure = curves_figure({name: Curve([Sample(1, 1.0, AT)]) for name in ("loss", "accuracy", "learning_rate")}, "/x")

    assert {trace["xaxis"] for trace in figure["data"]} == {"x"}
    assert [trace["yaxis"] for trace in figure["data"]] == ["y", "y2", "y3"]
    assert [title["text"] for title in figure["layout"]["annotations"]] == [
        "<b>Loss</b>",
        "<b>Accuracy (%)</b>",
        "<b>Learning rate</b>",
    ]
    weights = [row["weight"] for row in figure["layout"]["meta"]["rows"]]
    assert weights[2] < min(weights[:2]) / 2, "the learning rate takes little room"
    assert figure["layout"]["yaxis"]["rangemode"] == "normal", "a long loss is no flat line at 0"
    assert [row["key"] for row in figure["layout"]["meta"]["rows"]] == ["loss", "accuracy", "learning_rate"]


def test_metrics_that_are_not_drawn_are_all_named() -> None:
    names = [f"metric_{number:02}" for number in range(30)]
    figure = curves_figure({name: Curve([Sample(1, 1.0, AT)]) for name in names[:MAX_METRICS]}, "/x", None, names)
    drawn = [trace["meta"]["metric"] for trace in figure["data"]]
    assert [*drawn, *figure["layout"]["meta"]["left_out"]] == names


def test_nothing_reported_is_a_figure_without_lines() -> None:
    figure = curves_figure({}, "/jobs/1/curves.json")

    assert figure["data"] == []
    assert figure["layout"]["meta"]["url"] == "/jobs/1/curves.json"
