"""The notation of search spaces: what it means, what is refused, and the points of a grid."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UserError
from studies.space import (
    Choice,
    Constant,
    Normal,
    Uniform,
    checked_point,
    grid_point,
    grid_size,
    parse_space,
    space_as_json,
    varied,
)


def test_each_kind_of_parameter():
    assert parse_space(
        {
            "width": [32, 64],
            "act": {"kind": "choice", "values": ["relu", "gelu"]},
            "epochs": 5,
            "lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1},
            "drop": {"kind": "uniform", "low": 0, "high": 0.5, "step": 0.1},
            "layers": {"kind": "int", "low": 1, "high": 8.0},
            "batch": {"kind": "log_int", "low": 8, "high": 512},
            "noise": {"kind": "normal", "mean": 0, "deviation": 1, "step": None},
            "scale": {"kind": "log_normal", "mean": 0, "deviation": 0.5},
        }
    ) == {
        "act": Choice(("relu", "gelu")),
        "batch": Uniform(8, 512, log=True, whole=True),
        "drop": Uniform(0.0, 0.5, step=0.1),
        "epochs": Constant(5),
        "layers": Uniform(1, 8, whole=True),
        "lr": Uniform(1e-4, 0.1, log=True),
        "noise": Normal(0.0, 1.0),
        "scale": Normal(0.0, 0.5, log=True),
        "width": Choice((32, 64)),
    }


def test_parameters_are_in_the_order_of_their_names():
    space = parse_space({"b": [1, 2], "a": 3, "c": [1, 2]})
    assert list(space) == ["a", "b", "c"]
    assert varied(space) == ["b", "c"]


@pytest.mark.parametrize(
    ("parameter", "sentence"),
    [
        ({"kind": "log_uniform", "low": 0, "high": 1}, "`lr`: a logarithmic range begins above 0."),
        ({"kind": "log_int", "low": -1, "high": 1}, "`lr`: a logarithmic range begins above 0."),
        ({"kind": "log_uniform", "low": 5e-324, "high": 1}, "`lr`: a logarithmic range begins at 1e-300 or above."),
        ({"kind": "uniform", "low": 2, "high": 1}, "`lr`: `low`, 2, is above `high`, 1: swap them."),
        (
            {"kind": "uniform", "low": 2, "high": 2},
            "`lr`: the range begins and ends at 2: write 2 instead of the range.",
        ),
        (
            {"kind": "uniform", "low": 0, "high": 1, "step": 0},
            "`lr`: the step must be above 0; leave it out for a continuous range.",
        ),
        (
            {"kind": "uniform", "low": 0, "high": 1, "step": 5},
            "`lr`: the step, 5, is larger than the range from 0 to 1.",
        ),
        (
            {"kind": "uniform", "low": 0, "high": 1, "step": 5e-324},
            "`lr`: the step, 4.94065645841e-324, is too small for the range: leave it out.",
        ),
        (
            {"kind": "uniform", "low": 1e15, "high": 1.001e15, "step": 1},
            "`lr`: the step, 1, is too small for the range: leave it out.",
        ),
        (
            {"kind": "uniform", "low": 1, "high": 1.0000000001},
            "`lr`: the range from 1 to 1.0000000001 is too narrow: write a constant instead.",
        ),
        (
            {"kind": "log_int", "low": 2**53 - 1, "high": 2**53},
            "`lr`: the range from 9.00719925474e+15 to 9.00719925474e+15 is too narrow: write a constant instead.",
        ),
        ({"kind": "int", "low": 0.5, "high": 3}, "`lr`: `low` must be a whole number, not 0.5."),
        (
            {"kind": "uniform", "low": True, "high": 3},
            "`lr`: `low` must be a finite number of at most 9e15.",
        ),
        (
            {"kind": "uniform", "low": 0, "high": math.nan},
            "`lr`: `high` must be a finite number of at most 9e15.",
        ),
        ({"kind": "int", "low": 0, "high": 10**400}, "`lr`: `high` must be a finite number of at most 9e15."),
        ({"kind": "uniform", "low": "0", "high": 1}, "`lr`: `low` must be a finite number of at most 9e15."),
        ({"kind": "uniform", "low": 0}, "`lr`: the kind uniform needs `high`."),
        (
            {"kind": "uniform", "low": 0, "high": 1, "hi": 2},
            "`lr`: 'hi' is not known; the kind uniform has `low`, `high`, `step`, `round_to`.",
        ),
        (
            {"kind": "beta"},
            "`lr`: give its `kind`, one of uniform, log_uniform, int, log_int, choice, normal, log_normal.",
        ),
        ({}, "`lr`: give its `kind`, one of uniform, log_uniform, int, log_int, choice, normal, log_normal."),
        (
            {"kind": ["int"]},
            "`lr`: give its `kind`, one of uniform, log_uniform, int, log_int, choice, normal, log_normal.",
        ),
        ([], "`lr`: list at least one value, such as [32, 64]."),
        ({"kind": "choice", "values": "abc"}, "`lr`: list at least one value, such as [32, 64]."),
        ([32, 64, 32], "`lr`: '32' is listed twice: remove one."),
        ([1, True], "`lr`: 'True' is listed twice: remove one."),
        (list(range(10**6)), "`lr`: it lists 1,000,000 values: use at most 1,000, or a range."),
        ([[1]], "The parameter lr must be a short text, a finite number, true or false."),
        ([None], "The parameter lr must be a short text, a finite number, true or false."),
        ([math.inf], "The parameter lr must be a short text, a finite number, true or false."),
        ([10**400], "The parameter lr must be a short text, a finite number, true or false."),
        (None, "The parameter lr must be a short text, a finite number, true or false."),
        ({"kind": "normal", "mean": 0, "deviation": 0}, "`lr`: the deviation must be above 0."),
        (
            {"kind": "normal", "mean": 1e9, "deviation": 1e-9},
            "`lr`: the deviation is too small beside the mean: write a constant instead.",
        ),
        (
            {"kind": "log_normal", "mean": 0, "deviation": 20},
            "`lr`: its logarithm reaches 80: choose a smaller mean or deviation.",
        ),
        (
            {"kind": "normal", "mean": 0, "deviation": 1, "step": 9},
            "`lr`: the step, 9, is too large: all values are the same multiple of it.",
        ),
        (
            {"kind": "uniform", "low": 1, "high": 2, "round_to": 5},
            "`lr`: all numbers from 1 to 2 are rounded to the same value.",
        ),
        (
            {"kind": "uniform", "low": 0, "high": 2, "round_to": 1, "step": 1},
            "`lr`: give `step` or `round_to`, not both.",
        ),
        (
            {"kind": "uniform", "low": 0, "high": 2, "round_to": 0},
            "`lr`: `round_to` must be above 0; leave it out for a continuous range.",
        ),
        (
            {"kind": "int", "low": 0, "high": 2, "round_to": 1},
            "`lr`: 'round_to' is not known; the kind int has `low`, `high`, `step`.",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_with_a_sentence(parameter, sentence):
    with pytest.raises(UserError) as caught:
        parse_space({"lr": parameter})
    assert caught.value.message == sentence
    assert caught.value.fields == {"space": [sentence]}


@pytest.mark.parametrize("given", [None, [], "lr", 5, {}, {1: 2}, {"a b": [1, 2]}, {f"p{n}": n for n in range(101)}])
def test_what_is_no_space_is_refused_at_its_field(given):
    with pytest.raises(UserError) as caught:
        parse_space(given, field="search")
    assert list(caught.value.fields) == ["search"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["kind", "low", "high", "step", "round_to", "values", "mean", "deviation"]), inner
        )
    ),
    max_leaves=8,
)
KINDS = st.sampled_from(["uniform", "log_uniform", "int", "log_int", "choice", "normal", "log_normal"])
NUMBERS = st.floats() | st.integers() | st.integers(-100, 100)
HOSTILE = (
    JSON
    | st.fixed_dictionaries(
        {"kind": KINDS, "low": NUMBERS, "high": NUMBERS}, optional={"step": NUMBERS, "round_to": NUMBERS}
    )
    | st.fixed_dictionaries({"kind": KINDS, "mean": NUMBERS, "deviation": NUMBERS}, optional={"step": NUMBERS})
    | st.fixed_dictionaries({"kind": KINDS, "values": JSON})
)


def parsed(given):
    """Return the space and None, or None and the error."""
    try:
        return parse_space(given), None
    except UserError as error:
        return None, error


@given(st.dictionaries(st.text(max_size=3) | st.sampled_from(["lr", "width"]), HOSTILE, max_size=4))
def test_any_space_is_refused_with_a_sentence_or_survives_its_notation(given):
    space, error = parsed(given)
    if error is not None:
        assert error.fields["space"] == [error.message]
        assert error.message.isprintable()
        return
    assert parse_space(json.loads(json.dumps(space_as_json(space)))) == space
    size = grid_size(space)
    for n in range(min(size or 0, 3)):
        assert checked_point(space, grid_point(space, n)) == grid_point(space, n)
    if size is not None:
        assert checked_point(space, grid_point(space, size - 1))


def test_a_grid_has_each_combination_once():
    space = parse_space(
        {
            "a": ["x", "y"],
            "b": {"kind": "uniform", "low": 0.1, "high": 0.45, "step": 0.1},
            "c": {"kind": "int", "low": 2, "high": 7, "step": 2},
            "d": True,
        }
    )
    assert grid_size(space) == 24
    points = [grid_point(space, n) for n in range(24)]
    assert points[:4] == [
        {"a": "x", "b": 0.1, "c": 2, "d": True},
        {"a": "x", "b": 0.1, "c": 4, "d": True},
        {"a": "x", "b": 0.1, "c": 6, "d": True},
        {"a": "x", "b": 0.2, "c": 2, "d": True},
    ]
    assert len({tuple(point.values()) for point in points}) == 24
    # Written as a person would, and not as 0.30000000000000004.
    assert {point["b"] for point in points} == {0.1, 0.2, 0.3, 0.4}


def test_a_continuous_parameter_makes_a_grid_infinite():
    assert grid_size(parse_space({"a": [1, 2], "lr": {"kind": "uniform", "low": 0, "high": 1}})) is None
    assert grid_size(parse_space({"x": {"kind": "normal", "mean": 0, "deviation": 1}})) is None


def test_a_rounded_normal_has_the_multiples_within_four_deviations():
    space = parse_space({"x": {"kind": "normal", "mean": 0.2, "deviation": 0.5, "step": 1}})
    assert [grid_point(space, n)["x"] for n in range(grid_size(space))] == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_a_rounded_range_has_multiples_and_its_ends():
    """A number beyond an end counts as the end, which need not be a multiple."""
    for low, high, expected in (
        (2, 10, [2.0, 5.0, 10.0]),
        (3, 10, [5.0, 10.0]),
        (2.5, 12.5, [5.0, 10.0]),
        (1, 12, [1.0, 5.0, 10.0]),
        (1, 13, [1.0, 5.0, 10.0, 13.0]),
    ):
        space = parse_space({"x": {"kind": "uniform", "low": low, "high": high, "round_to": 5}})
        assert [grid_point(space, n)["x"] for n in range(grid_size(space))] == expected
        assert all(space["x"].contains(value) for value in expected)
        assert not space["x"].contains(7)
        assert str(space["x"]) == f"the range from {low} to {high} in multiples of 5"


def test_values_that_a_user_wants_tried():
    space = parse_space(
        {"lr": {"kind": "log_uniform", "low": 0.001, "high": 1}, "n": {"kind": "int", "low": 1, "high": 9}, "e": 5}
    )
    assert checked_point(space, {"lr": 0.1, "n": 3.0}) == {"e": 5, "lr": 0.1, "n": 3}
    assert type(checked_point(space, {"lr": 0.1, "n": 3.0})["n"]) is int


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"n": 3}, "`lr` has no value: give one from the range from 0.001 to 1."),
        ({"n": 10, "lr": 0.1}, "`n`: '10' is not in the whole numbers from 1 to 9."),
        ({"n": 2.5, "lr": 0.1}, "`n`: '2.5' is not in the whole numbers from 1 to 9."),
        ({"n": True, "lr": 0.1}, "`n`: 'True' is not in the whole numbers from 1 to 9."),
        ({"n": "3", "lr": 0.1}, "`n`: '3' is not in the whole numbers from 1 to 9."),
        ({"n": 3, "lr": 0.1, "e": 6}, "`e`: '6' is not in the constant 5."),
        ({"n": 3, "lr": 0.1, "z": 6}, "`z` is not a parameter of this study: leave it out."),
    ],
)
def test_values_outside_the_space_are_refused(values, sentence):
    space = parse_space(
        {"lr": {"kind": "log_uniform", "low": 0.001, "high": 1}, "n": {"kind": "int", "low": 1, "high": 9}, "e": 5}
    )
    with pytest.raises(UserError, match="^" + sentence.replace(".", r"\.") + "$"):
        checked_point(space, values)
