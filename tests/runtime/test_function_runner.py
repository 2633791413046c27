"""The script that calls a function, as its rank starts it: in a process of its own."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidepool import function_runner as caller
from tidepool.client import values
from tidepool.client.calls import Call, as_package, packed
from tidepool.client.errors import TidepoolError
from tidepool.client.pack import on_cpus, package
from tidepool.function_payload import CALL_FACTS, CALL_FILE, VALUE_FILE

Ran = subprocess.CompletedProcess[str]


def _run(call: Call, folder: Path, rank: str | None = "0") -> Ran:
    variables = {} if rank is None else {"RANK": rank}
    with as_package(call) as code:
        return subprocess.run(
            [sys.executable, code.entry_point],
            cwd=code.folder,
            env={
                **os.environ,
                "RESULT_DIR": str(folder),
                "LOG_DIR": str(folder),
                **variables,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def _value(folder: Path) -> Any:
    content = values.value_bytes(1, None, lambda name: (folder / name).read_bytes())
    assert content is not None
    return values.loaded(1, content)


def _failing(function: Callable[..., Any], folder: Path) -> str:
    ended = _run(packed(function), folder)
    assert ended.returncode == 1
    return ended.stderr


def test_rank_0_alone_leaves_its_value(tmp_path: Path) -> None:
    class Best:
        def __init__(self, accuracy: float) -> None:
            self.accuracy = accuracy

    def train(first: int, *, second: int) -> Any:
        print("training")
        return Best(first + second), bytes(100_000)

    assert _run(packed(train, (1,), {"second": 2}), tmp_path, rank="1").stdout == "training\n"
    assert not (tmp_path / VALUE_FILE).exists()
    _run(packed(train, (1,), {"second": 2}), tmp_path)
    best, large = _value(tmp_path)
    assert (type(best), best.accuracy, len(large)) == (Best, 3, 100_000)
    (tmp_path / VALUE_FILE).write_bytes(b"other")
    with pytest.raises(TidepoolError):
        _value(tmp_path)


def _adds_up() -> tuple[float, int, str]:
    import os

    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    total = torch.tensor([float(os.environ["LOCAL_RANK"])])
    distributed.all_reduce(total)
    distributed.destroy_process_group()
    return total.item(), int(os.environ["WORLD_SIZE"]), os.environ["CUDA_VISIBLE_DEVICES"]


def _fails_on_one() -> None:
    import os
    import time

    if os.environ["RANK"] == "1":
        raise ValueError("only here")
    time.sleep(600)


def _on_cpus(function: Callable[..., Any], count: int, folder: Path) -> Ran:
    call = packed(function)
    return _run(replace(call, facts=replace(call.facts, cpu_processes=count)), folder, rank=None)


def test_several_processes_on_cpus_find_each_other(tmp_path: Path) -> None:
    ended = _on_cpus(_adds_up, 3, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert _value(tmp_path) == (3.0, 3, "")


def _says_who_it_is() -> None:
    import os

    print("rank", os.environ["RANK"])


def test_the_log_has_each_line_of_several_processes_once(tmp_path: Path) -> None:
    ended = _on_cpus(_says_who_it_is, 3, tmp_path)
    assert ended.stdout == "rank 0\n", "what the others print is in files of their own"
    assert [(tmp_path / f"stdout.rank-{rank}").read_text() for rank in (1, 2)] == ["rank 1\n", "rank 2\n"]


def test_the_first_process_that_fails_ends_the_others(tmp_path: Path) -> None:
    ended = _on_cpus(_fails_on_one, 2, tmp_path)
    assert (ended.returncode, ended.stderr.strip().splitlines()[-1]) == (1, "ValueError: only here")


def test_a_script_of_a_package_runs_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes/net.py").write_text("NAME = 'net'\n")
    (tmp_path / "shapes/train.py").write_text(
        "import os, sys\nfrom .net import NAME\n"
        "sys.stdout.write(' '.join([NAME, os.environ['RANK'], *sys.argv[1:]]) + chr(10))\n"
    )
    with on_cpus(package(tmp_path / "shapes/train.py"), 2) as code:
        ended = subprocess.run(
            [sys.executable, code.entry_point, "--rate", "1"],
            cwd=code.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, sorted(ended.stdout.splitlines())) == (
        0,
        ["net 0 --rate 1", "net 1 --rate 1"],
    ), ended.stderr


def test_an_error_shows_the_lines_of_the_function(tmp_path: Path) -> None:
    def train() -> None:
        raise ValueError("too hot")

    said = _failing(train, tmp_path)
    assert 'raise ValueError("too hot")' in said
    assert said.endswith("ValueError: too hot\n")


def test_a_value_that_cannot_travel_fails_with_its_type(tmp_path: Path) -> None:
    def leaky() -> Any:
        return threading.Lock()

    assert "CannotReturn: leaky returned lock, which cannot be sent back" in _failing(leaky, tmp_path)


def test_a_value_that_is_too_large_fails_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "MAX_VALUE_BYTES", 1000)
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    with pytest.raises(caller.CannotReturn, match="large returned bytes of 2 KiB"):
        caller._leave(bytes(2000), "large")
    assert list(tmp_path.iterdir()) == []


def test_it_loads_nothing_that_differs(tmp_path: Path) -> None:
    call = packed(len, ([],))
    for facts, said in (
        ({"python": "3.1"}, "len was sent by Python 3.1, and this is"),
        ({"cloudpickle": "0.1"}, "len was sent by cloudpickle 0.1, and here is"),
        ({"sha256": ""}, "len has changed on its way"),
    ):
        assert said in _run(replace(call, facts=replace(call.facts, **facts)), tmp_path).stderr  # type: ignore[arg-type]


def test_it_loads_what_the_next_version_of_the_series_wrote(tmp_path: Path) -> None:
    call = packed(len, ([],))
    later = replace(call.facts, cloudpickle=call.facts.cloudpickle.rpartition(".")[0] + ".99")
    ended = _run(replace(call, facts=later), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_module_that_the_cluster_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tp_absent.py").write_text("def train(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import tp_absent  # type: ignore[import-not-found]

    call = packed(tp_absent.train)
    with as_package(call) as code:
        names = {file.as_posix() for file in code.files}
    assert {CALL_FILE, CALL_FACTS} < names
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    ended = _run(call, tmp_path)
    assert "No module named 'tp_absent', which train refers to. The cluster does not have it" in ended.stderr
