"""Tests of the packing of functions, and of the refusals of what cannot be sent."""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from tidepool.client import calls
from tidepool.client.calls import packed, refuse_other_software
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
