"""Checkpoints: whole or not at all, verified when read, and a training continues from one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tidepool.torch.checkpoint import KEPT_CHECKPOINTS, CheckpointError, read_checkpoint, write_checkpoint
from tidepool.torch.state import Position, TrainingState

from tests.runtime.lab import Lab, wait_for


def training(seed: int) -> TrainingState:
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return TrainingState(model, optimizer, {}, Position(step=seed, effective_batch_size=64))


def test_a_checkpoint_restores_everything(tmp_path: Path) -> None:
    saved, other = training(5), training(6)
    told = write_checkpoint(tmp_path, saved)
    read_checkpoint(Path(told["path"]), other)
    assert other.pack()[0] == saved.pack()[0]
    assert all(a.equal(b) for a, b in zip(other.pack()[1], saved.pack()[1], strict=True))


def test_a_corrupt_checkpoint_is_refused(tmp_path: Path) -> None:
    path = Path(write_checkpoint(tmp_path, training(5))["path"]) / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="sha256"):
        read_checkpoint(path.parent, training(6))


@pytest.mark.parametrize("header", ["{}", "[]", "not JSON"])
def test_a_checkpoint_with_a_strange_header_is_refused(tmp_path: Path, header: str) -> None:
    path = Path(write_checkpoint(tmp_path, training(5))["path"])
    (path / "state.json").write_text(header)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(path, training(6))


def test_a_position_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    path = Path(write_checkpoint(tmp_path, training(5))["path"])
    header = json.loads((path / "state.json").read_text())
    header["structure"] = header["structure"].replace('["step", 5]', '["step", 6]')
    (path / "state.json").write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match="sha256"):
        read_checkpoint(path, training(6))


def test_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "step-1", training(6))


def test_old_checkpoints_make_room(tmp_path: Path) -> None:
    for step in range(1, 6):
        write_checkpoint(tmp_path, training(step))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        f"step-{step:09d}" for step in range(6 - KEPT_CHECKPOINTS, 6)
    ]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_training_continues_from_its_checkpoint(make_lab: Callable[..., Lab], ranks: int) -> None:
    first = make_lab("mlp.py", arguments=["--epochs", "4", "--every", "1"])
    first.size(1)
    first.wait_for_the_end()
    checkpoint = first.journal("checkpoint")[-2]
    assert checkpoint["epoch"] == 3

    second = make_lab("mlp.py", arguments=["--epochs", "4"], checkpoint=checkpoint["path"], min_slots=ranks)
    second.size(ranks)
    second.wait_for_the_end()

    assert [record["step"] for record in second.steps()] == list(range(3 * 17 + 1, 4 * 17 + 1))
    ends = [torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True) for lab in (first, second)]
    assert all(ends[0][name].allclose(ends[1][name], atol=1e-5) for name in ends[0])
    assert all(ends[0][name].equal(ends[1][name]) for name in ends[0]) or ranks > 1, "one rank adds in the same order"


def test_a_job_says_that_its_checkpoint_is_unusable(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab("mlp.py", checkpoint=str(tmp_path / "step-1"), min_slots=2)
    lab.size(2)
    wait_for(lambda: lab.exits(), lab.story)

    [failed, *_] = lab.exits().values()
    assert failed["code"] == 1
    assert failed["error"]["kind"] == "CheckpointError"
    assert "the checkpoint step-1 cannot be read" in failed["error"]["message"]
    assert lab.steps() == []
