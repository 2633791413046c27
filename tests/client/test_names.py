"""Tests of the names that a cell takes along."""

import pickle
import sys
import traceback

import pytest
from tidepool.notebook.names import as_function, names_needed, take_over
from tidepool.notebook_cells import Outcome, run

KNOWN = ("a", "b", "c", "f", "model")


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("x = a + 1", "a"),
        ("a = 1\nx = a", ""),
        ("a = a + 1", "a"),
        ("a += 1", "a"),
        ("del a", "a"),
        ("a: int = 3\nx = a", ""),
        ("import a\nfrom z import b as c\na, c", ""),
        ("if x:\n    a = 1\nprint(a)", "a"),
        ("def g(a):\n    return a + b", "b"),
        ("def g():\n    global c\n    c = f(a)", "a c f"),
        ("class K(b):\n    x = a", "a b"),
        ("y = [a for a in b]", "b"),
        ("f = lambda: a\nf()", "a"),
        ("(a, (b, *c)) = f()\na, b, c", "f"),
        ("model.x = 3", "model"),
        ("a[b] = 3", "a b"),
        ("with f() as a:\n    a", "a f"),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_those_that_it_reads_before_it_assigns_them(source: str, needed: str) -> None:
    assert " ".join(names_needed(source, KNOWN)) == needed


@pytest.mark.parametrize("source", ["x = (", "return 3", "await f()", "!ls"])
def test_what_is_no_cell(source: str) -> None:
    with pytest.raises(SyntaxError):
        names_needed(source, KNOWN)


def _loaded(outcome: Outcome) -> dict[str, object]:
    return {name: pickle.loads(content) for name, content in outcome.values.items()}


def test_a_cell_gives_back_what_it_assigns() -> None:
    outcome = run({}, "import json\nx = y + 1\n_z = 3\nf = (i for i in ())\ny.bit_length()", None, {"y": 4})
    assert (_loaded(outcome), outcome.modules) == ({"x": 5}, {"json": "json"})
    assert "f" in outcome.left


def test_what_is_named_comes_back_even_if_it_was_only_changed() -> None:
    assert run({}, "history.append(1)", ["history"], {"history": []}).values.keys() == {"history"}
    assert run({}, "history.append(1)", None, {"history": []}).values == {}
    with pytest.raises(NameError, match="--out"):
        run({}, "x = 1", ["z"], {})
    with pytest.raises(TypeError, match="--out"):
        run({}, "f = (i for i in ())", ["f"], {})


def test_functions_of_the_notebook_see_what_the_cell_assigns() -> None:
    notebook: dict[str, object] = {"__name__": "__main__"}
    exec("rate = 1\ndef scaled(x):\n    return rate * x", notebook)
    outcome = as_function(notebook)("rate = 3\ny = scaled(2)", None, scaled=notebook["scaled"])
    assert _loaded(outcome) == {"rate": 3, "y": 6}


def test_an_error_shows_the_lines_of_the_cell() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run({}, "x = 1\ny = x / 0\n", None, {})
    assert "y = x / 0" in "".join(traceback.format_exception(raised.value))


def test_what_cannot_be_imported_here_is_named() -> None:
    namespace: dict[str, object] = {}
    values, modules = {"x": pickle.dumps(1), "bad": b""}, {"s": "sys", "n": "no_such_module"}
    missing = take_over(Outcome(values, modules, {"f": "cannot pickle"}), namespace)
    assert namespace == {"x": 1, "s": sys}
    assert set(missing) == {"n", "f", "bad"}
