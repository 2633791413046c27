from typing import Any

import pytest
from tidepool.space_notation import is_sweep, searched_values, typed_value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("32, 64,128", [32, 64, 128]),
        ("relu,gelu", ["relu", "gelu"]),
        ("true,false", [True, False]),
        ("0.1:0.9", {"kind": "uniform", "low": 0.1, "high": 0.9}),
        ("1e-4 : 1e-1 : log", {"kind": "log_uniform", "low": 1e-4, "high": 0.1}),
        ("1:8:int", {"kind": "int", "low": 1, "high": 8}),
        ("1:512:logint", {"kind": "log_int", "low": 1, "high": 512}),
        ("0:1:step=0.25", {"kind": "uniform", "low": 0, "high": 1, "step": 0.25}),
        ("adam", "adam"),
        ("5", 5),
        ("http://host:80/a", "http://host:80/a"),
        ("1:2:3", "1:2:3"),
    ],
)
def test_a_line_of_text_becomes_values(text: str, values: Any) -> None:
    assert searched_values(text) == values


@pytest.mark.parametrize(("text", "value"), [("1e-3", 1e-3), (" 07 ", 7), (".5", 0.5), ("nan", "nan"), ("{}", "{}")])
def test_text_is_typed(text: str, value: Any) -> None:
    assert typed_value(text) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.1, 0.03, 0.01", True), ("true,false", True), ("a,b", False), ("1,", False), ("0.1", False), ("1,000,", False)],
)
def test_only_lists_of_numbers_and_flags_are_sweeps(text: str, expected: bool) -> None:
    assert is_sweep(text) is expected
