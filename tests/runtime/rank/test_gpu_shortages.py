"""What fills a GPU's memory: words on torch's snapshot, and the recorder that torch calls, by a stand-in of CUDA."""

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool import gpu_shortage
from tidepool.gpu_shortage import memory_record
from tidepool.torch.rank import gpu_shortages
from tidepool.torch.rank.gpu_shortages import SNAPSHOT_FILE, ShortageRecorder, record_shortages
from tidepool.torch.rank.memory_summary import Shortage, shortage_words

from tests.runtime.lab import Lab, running_forkserver
from tests.waiting import wait_until

MIB, GIB = 1024**2, 1024**3
CODE = Path("/jobs/7/code")
FULL = Shortage(0, 2 * GIB, 80 * GIB, 1 * GIB)


def block(size: int, state: str = "active_allocated", line: int | None = None) -> dict[str, Any]:
    inner = [{"filename": "/site-packages/torch/nn/functional.py", "line": 9, "name": "relu"}]
    own = [{"filename": f"{CODE}/train.py", "line": line, "name": "forward"}]
    return {"size": size, "state": state, "frames": [] if line is None else inner + own}


def snapshot(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    return {"segments": [{"device": device, "total_size": 0, "blocks": [*blocks]}], "device_traces": [[]]}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_shortage, "_words", "")
    monkeypatch.setattr(gpu_shortages, "_recorders", [])


def words_of(*blocks: dict[str, Any], shortage: Shortage = FULL) -> str:
    return shortage_words(shortage, snapshot(*blocks)["segments"], CODE)


def test_the_lines_that_have_made_most_tensors_are_named() -> None:
    assert words_of(block(40 * GIB, line=30), block(10 * GIB, line=30), block(20 * GIB, line=44), block(GIB)) == (
        "2 GiB of the GPU's memory were asked for where 1 GiB of 80 GiB were free: tensors took 71 GiB. The largest"
        " part: 2 tensors made in train.py line 30, in forward (50 GiB), 1 tensor made in train.py line 44, in forward"
        " (20 GiB), 1 tensor of 1 GiB (1 GiB)."
    )


def test_without_recorded_stacks_tensors_are_named_by_their_sizes() -> None:
    assert "part: 48 tensors of 1 GiB (48 GiB), 1 tensor of 4 GiB (4 GiB)." in words_of(
        *[block(GIB)] * 48, block(4 * GIB)
    )


@pytest.mark.parametrize(("spare", "is_fragmented"), [(0, False), (1, False), (3, True)])
def test_pieces_that_are_too_small_have_a_remedy(spare: int, is_fragmented: bool) -> None:
    words = words_of(block(70 * GIB), *[block(1 * GIB, "inactive")] * spare)
    assert ("expandable_segments" in words) == is_fragmented
    assert ("in pieces of at most 1 GiB" in words) == (spare > 0)


def test_other_gpus_and_empty_snapshots_say_nothing_wrong() -> None:
    assert "tensors took 0 B." in shortage_words(FULL, snapshot(block(GIB), device=1)["segments"], CODE)
    assert "tensors took 0 B." in shortage_words(FULL, [], CODE)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShortageRecorder:
    asked = inspect.signature(torch.cuda.memory._snapshot)

    def stand_in(*arguments: Any) -> dict[str, Any]:
        asked.bind(*arguments)
        return snapshot(block(70 * GIB))

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", stand_in)
    return ShortageRecorder(tmp_path, CODE)


def test_a_shortage_leaves_a_snapshot_and_its_words(recorder: ShortageRecorder, tmp_path: Path) -> None:
    recorder.note(*FULL)
    assert pickle.loads((tmp_path / SNAPSHOT_FILE).read_bytes()) == snapshot(block(70 * GIB))
    assert "tensors took 70 GiB" in memory_record("OutOfMemoryError")["memory"]
    assert memory_record("ValueError") == {}, "an error that the script has caught does not explain another one"
    assert [file.name for file in tmp_path.iterdir()] == [SNAPSHOT_FILE]


def test_a_snapshot_that_is_too_large_is_not_kept(
    recorder: ShortageRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_shortages, "_MOST_BYTES", 10)
    recorder.note(*FULL)
    assert [*tmp_path.iterdir()] == []
    assert memory_record("OutOfMemoryError")["memory"].endswith("so it was not kept.")


def test_no_failure_of_the_snapshot_replaces_the_error_of_torch(
    recorder: ShortageRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(device: int) -> dict[str, Any]:
        raise RuntimeError("unknown block")

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", fails)
    recorder.note(*FULL)
    assert "no snapshot of the GPU's memory: RuntimeError: unknown block" in capsys.readouterr().err
    assert memory_record("OutOfMemoryError") == {}


def test_a_script_that_goes_on_is_not_held_up_each_time(
    recorder: ShortageRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_shortages, "_MOST_SECONDS", -1.0)
    recorder.note(*FULL)
    assert [*tmp_path.iterdir()] == []


def test_off_the_cluster_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Callable[[], None]] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    record_shortages()
    assert queued == []


def test_a_rank_that_ends_by_it_says_what_has_filled_the_gpu(tmp_path: Path) -> None:
    with running_forkserver(tmp_path) as forkserver:
        lab = Lab(forkserver, tmp_path / "job", "full_gpu.py", sizes={"a": 1}, engine="fixed", min_slots=1)
        try:
            lab.size(1)
            [end] = wait_until(lambda: lab.exits().values(), lab.story)
        finally:
            lab.stop()
    assert end["error"]["kind"] == "OutOfMemoryError"
    assert "tensors took 70 GiB" in end["error"]["memory"]
