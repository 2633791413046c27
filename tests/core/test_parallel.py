import re

import pytest
from django.template.loader import render_to_string

from core.parallel import Column, axes_of, drawing


def test_numbers_are_linear_or_logarithmic_and_a_few_words_are_evenly_spaced() -> None:
    columns = [
        Column("setting", "lr", [0.001, 0.1, 1.0, None]),
        Column("setting", "epochs", [1, 2, 3, 2]),
        Column("setting", "optimizer", ["SGD", "Adam", "AdamW", "SGD"]),
        Column("setting", "fixed", [1, 1, 1, None]),
        Column("metric", "loss", [float("nan"), 1.0, 2.0, 3.0]),
        Column("setting", "words", ["a", "b", True, None]),
        Column("setting", "many", [f"text {number}" for number in range(13)]),
    ]
    axes = {axis.column.name: axis for axis in axes_of(columns)}
    assert set(axes) == {"lr", "epochs", "optimizer", "loss", "words"}
    assert axes["lr"].places == pytest.approx([0, 2 / 3, 1, None])
    assert [text for _, text in axes["lr"].ticks] == ["0.001", "0.01", "0.1", "1"]
    assert axes["epochs"].places == [0, 0.5, 1, 0.5]
    assert axes["epochs"].ticks == [(0, "1"), (0.25, "1.5"), (0.5, "2"), (0.75, "2.5"), (1, "3")]
    assert axes["optimizer"].places == [1, 0, 0.5, 1]
    assert axes["optimizer"].scale is None


def test_a_column_may_say_whether_its_axis_is_logarithmic() -> None:
    values = [1.0, 3.0, 9.0]
    log, linear = axes_of([Column("setting", "a", values, log=True), Column("setting", "b", [1, 500, 999], log=False)])
    assert log.places == pytest.approx([0, 0.5, 1])
    assert [text for _, text in log.ticks] == ["1", "9"]
    assert linear.places == pytest.approx([0, 0.5, 1])
    [below] = axes_of([Column("setting", "c", [-1, 0, 1], log=True)])
    assert below.scale is not None
    assert not below.scale.log


def test_a_line_has_gaps_where_there_is_no_value_and_the_colour_of_its_last() -> None:
    columns = [
        Column("setting", "one", [0, 1, None]),
        Column("setting", "two", [0, 1, 1]),
        Column("metric", "<loss>", [0, 1, None]),
    ]
    drawn = drawing([(7, "a"), (8, "b & c"), (9, "d")], axes_of(columns))
    assert [line.path for line in drawn.lines] == [
        "M70 340.0 L220 340.0 L370 340.0",
        "M70 40.0 L220 40.0 L370 40.0",
        "",
    ]
    assert [line.shade for line in drawn.lines] == [0, 5, "none"]
    page = render_to_string("_parallel.html", {"drawing": drawn})
    assert re.findall(r'data-line="(\d)"', page) == ["7", "8"]
    assert "&lt;loss&gt;" in page
    assert "b &amp; c" in page
