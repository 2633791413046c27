"""Tests of the packing of functions, and of the refusals of what cannot be sent."""

import importlib
import inspect
import io
import subprocess
import sys
import threading
import tokenize
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from tidepool.client import calls
from tidepool.client.calls import missing_words, packed, refuse_other_software
from tidepool.client.errors import InvalidRequest


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function of a module in the working folder, that uses another module there."""
    (tmp_path / "tp_shapes.py").write_text("class Shape:\n    sides = 3\n")
    (tmp_path / "tp_mine.py").write_text("import tp_shapes\ndef train(n):\n    return tp_shapes.Shape.sides * n\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import tp_mine  # type: ignore[import-not-found]

    yield tp_mine.train
    for name in ("tp_mine", "tp_shapes"):
        sys.modules.pop(name, None)


def test_modules_of_the_working_folder_travel_and_stay_unregistered(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = packed(train, (2,))
    assert cloudpickle.list_registry_pickle_by_value() == set()
    for name in ("tp_mine", "tp_shapes"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "pytest-" not in entry])
    function, arguments, keywords = cloudpickle.loads(call.content)
    assert function(*arguments, **keywords) == 6


def test_the_source_goes_along_for_tracebacks(train: Callable[..., Any]) -> None:
    (name,) = packed(train).facts.sources
    assert name.endswith("tp_mine.py")


def test_it_names_what_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    with (tmp_path / "lines.txt").open("w") as lines:
        settings = {"out": lines}

        def plain() -> Any:
            return lines.name

        def nested() -> Any:
            return settings

        def locked() -> Any:
            return lock

        def taking(value: Any) -> Any:
            return value

        for function, said in (
            (plain, "Cannot send `plain`: it refers to `lines`, an open file. Open it inside the function."),
            (nested, "Cannot send `nested`: it refers to `out`, an open file. Open it inside the function."),
            (locked, "Cannot send `locked`: it refers to `lock`, a lock. Make it inside the function."),
            (lambda: lines.name, "Cannot send `<lambda>`: it refers to `lines`, an open file."),
        ):
            with pytest.raises(TypeError) as raised:
                packed(function)
            assert str(raised.value).startswith(said)
        with pytest.raises(TypeError, match=r"^Cannot send `taking` with argument 1, an open file"):
            packed(taking, (lines,))
        with pytest.raises(TypeError, match=r"^Cannot send `taking` with value=, an open file"):
            packed(taking, (), {"value": lines})


def test_a_file_that_is_read_is_not_sent_as_a_copy(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one")
    with (tmp_path / "lines.txt").open() as lines, pytest.raises(TypeError, match="it refers to `lines`, an open file"):
        packed(lambda: lines.read())
    assert cloudpickle.loads(packed(len, (io.StringIO("in memory"),)).content)[1][0].read() == "in memory"


def test_it_names_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_CALL_BYTES", 1_000_000)
    images, little = bytearray(2_000_000), [1, 2]

    def train() -> Any:
        return images, little

    with pytest.raises(InvalidRequest) as raised:
        packed(train)
    assert str(raised.value) == (
        "`train` is 1.9 MiB, most of it `images` (a bytearray), more than the limit of 976.6 KiB. Register it as a "
        "dataset, or read it inside the function."
    )


def test_other_software_is_refused_before_anything_is_queued() -> None:
    call = packed(len, ([],))
    there = {"python": f"{call.facts.python}.9", "packages": {"cloudpickle": call.facts.cloudpickle}}
    refuse_other_software(call, there)
    last = call.facts.cloudpickle.rpartition(".")[0] + ".99"
    refuse_other_software(call, {**there, "packages": {"cloudpickle": last}})
    older = replace(call, facts=replace(call.facts, python="3.9"))
    with pytest.raises(InvalidRequest, match=r"^This notebook runs Python 3\.9, the cluster 3\.\d+: send a script, or"):
        refuse_other_software(older, there)
    with pytest.raises(InvalidRequest, match=r"the cluster 2\.0: `pip install cloudpickle==2\.0`"):
        refuse_other_software(call, {**there, "packages": {"cloudpickle": "2.0"}})


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function of a working folder, with what it needs of it and of a module that is installed elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "tp_foreign.py").write_text("class Layer: ...\ndef loss(): ...\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "tp_helpers.py").write_text(
        "def needed():\n    import tp_absent\ndef not_needed():\n    import tp_never\n"
    )
    (tmp_path / "work" / "tp_beside.py").touch()
    (tmp_path / "work" / "tp_work.py").write_text(
        "import tp_helpers\nfrom tp_foreign import loss\n"
        "class Net:\n    def forward(self):\n        from tp_layers import x\n"
        "def train():\n    tp_helpers.needed()\n    Net()\n    loss()\n    import tp_beside\n"
    )
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(tmp_path / "work")
    yield importlib.import_module("tp_work").train
    for name in ("tp_work", "tp_helpers", "tp_foreign"):
        sys.modules.pop(name, None)


def test_a_call_tells_which_modules_the_ranks_import(loaded: Callable[..., Any]) -> None:
    call = packed(loaded)
    assert call.modules == {"tp_foreign", "tp_absent", "tp_layers", "tp_beside"}
    assert missing_words(call, {"modules": ["tp_foreign"]}) == [
        "The cluster lacks tp_absent, tp_layers, which train imports. Name their packages in requirements, unless an "
        "administrator has added them to the hosts.",
        "train imports tp_beside within it, which is not sent: import your own modules outside of it, and they are "
        "sent with what uses them.",
    ]
    assert missing_words(call, {"modules": [*call.modules]}) == missing_words(call, {}) == []


def test_an_own_module_that_is_imported_within_a_function_is_not_sent(loaded: Callable[..., Any]) -> None:
    function = types.FunctionType(_imports_beside.__code__, {"__name__": "__main__"})
    ends = [
        sys.executable,
        "-P",
        "-c",
        "import pickle, sys\nfunction, *_ = pickle.load(sys.stdin.buffer)\nfunction()\n",
    ]
    done = subprocess.run(ends, input=packed(function).content, capture_output=True, timeout=60, check=False)
    assert b"No module named 'tp_beside'" in done.stderr


def _imports_beside() -> None:
    import tp_beside  # type: ignore[import-not-found]  # noqa: F401


def _imports_much() -> None:
    import click  # noqa: F401
    import django  # noqa: F401
    import sqlparse  # noqa: F401
    import tp_absent  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize(
    ("requirements", "named"),
    [
        ("", "click, django, sqlparse, tp_absent"),
        ("# none", "click, django, sqlparse, tp_absent"),
        ("Django>=5", "click"),
        ("--extra-index-url https://example.org\nsqlparse", "click, django"),
        ("tp-unknown", ""),
        ("Django\n-r base.txt", ""),
        ("./package", ""),
    ],
)
def test_with_requirements_only_what_they_surely_lack_is_named(requirements: str, named: str) -> None:
    told = missing_words(packed(_imports_much), {"modules": []}, requirements)
    assert [each for each in told if f" {named}, which _imports_much imports." not in each] == []
    assert len(told) == bool(named)
    assert not requirements or all(each.startswith("The cluster and the requirements lack") for each in told)


def test_a_source_that_cannot_be_read_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.FunctionType(_imports_beside.__code__.replace(co_filename="<gone>"), {"__name__": "__main__"})
    assert packed(made).modules == set()

    def changed(function: object) -> str:
        raise tokenize.TokenError("EOF in multi-line statement")

    monkeypatch.setattr(inspect, "getsource", changed)
    assert packed(_imports_beside).modules == set()


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import mlflow.pytorch", {"mlflow", "pandas", "torch"}),
        ("from mlflow import sklearn", {"mlflow", "pandas", "sklearn"}),
        ("from mlflow.models import infer_signature", {"mlflow", "pandas"}),
        ("import mlflow\nmlflow.log_metric('loss', 1)", {"mlflow"}),
        ("if first:\n    mlflow.pyfunc.log_model()", {"mlflow", "pandas"}),
        ("with suppress(ImportError):\n    import wandb\nwith lock:\n    import timm", {"timm"}),
        ("from . import beside\nfrom os import path\nimport tidepool", set()),
    ],
)
def test_the_modules_of_a_cell(source: str, modules: set[str]) -> None:
    assert packed(len, ([],), cell=source).modules == modules
