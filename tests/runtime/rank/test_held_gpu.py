"""Tests of ranks that hold a GPU and would train without it."""

import json
from collections.abc import Callable

import pytest
import torch
from tidepool.torch.rank.held_gpu import GpuNotSeen, check_held_gpu

from tests.runtime.lab import Lab
from tests.waiting import wait_until

CPU = torch.device("cpu")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0")


def test_a_gpu_that_torch_does_not_see_is_no_reason_to_train_on_the_cpu(
    held: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GpuNotSeen, match=r"manage\.py doctor on that host"):
        check_held_gpu(CPU, "gpu-7")
    check_held_gpu(torch.device("cuda", 0), "gpu-7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check_held_gpu(CPU, "gpu-7")


def test_a_script_that_leaves_its_gpu_alone_is_told(
    held: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_held_gpu(CPU, "gpu-7")
    assert "it trains on the CPU" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and torch sees it")
def test_a_training_on_gpus_that_torch_does_not_see_ends_and_says_so(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "1", "--samples", "64"], sizes={"a": 1}, virtual=False)
    lab.size(1)
    [end] = wait_until(lambda: [*lab.exits().values()], lab.story)
    assert end["error"]["kind"] == "GpuNotSeen", json.dumps(end)
    assert "GPU of host a" in end["error"]["message"]
    assert not lab.steps()
