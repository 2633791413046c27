"""Tests of sums of tensors by device, and of NCCL operations that are broken off.

There is no GPU here: the communicator is a stand-in that does what torch's documents say. tests/gpu has the real one.
"""

import threading
import time
from typing import Any

import pytest
import torch
from tidepool.torch.comm import nccl as communicators
from tidepool.torch.comm.nccl import GPU_PART, Nccl, NcclError, backend_for, device_name, start_nccl
from torch.distributed import HashStore

from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("devices", "backend"),
    [
        (["GPU-1", "GPU-2", "GPU-3"], "nccl"),
        (["GPU-1", "GPU-2", "GPU-1"], "gloo"),
        (["GPU-1", "GPU-1"], "gloo"),
        (["cpu", "cpu"], "gloo"),
        (["GPU-1", "cpu"], "gloo"),
        (["GPU-1", GPU_PART], "gloo"),
    ],
    ids=["a GPU each", "two on one of them", "one GPU", "no GPU", "one without", "an instance of MIG"],
)
def test_nccl_needs_a_gpu_for_each_rank(devices: list[str], backend: str) -> None:
    assert backend_for(devices) == backend
    assert backend_for(devices[::-1]) == backend


def test_what_is_no_gpu_is_the_hosts_memory() -> None:
    assert device_name(torch.device("cpu")) == device_name(torch.device("meta")) == "cpu"


def test_an_instance_of_a_divided_gpu_has_no_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    assert device_name(torch.device("cuda")) == GPU_PART


class Communicator:
    """Records what is asked of it, in order. An abort takes its time, as NCCL's does."""

    def __init__(self, *, connects_after: int = 0, refuses: bool = False) -> None:
        self.asked: list[str] = []
        self._connects_after, self._refuses = connects_after, refuses

    def eager_connect_single_device(self, device: torch.device) -> None:
        if self._refuses:
            raise RuntimeError("no such device")
        self.asked.append(f"connect {device}")

    def _is_initialized(self) -> bool:
        return not self._connects_after

    def _comm_ptr(self) -> int:
        while self._connects_after and "abort" not in self.asked:
            self._connects_after -= 1
            time.sleep(0.001)
        return 1

    def abort(self) -> None:
        time.sleep(0.05)
        self.asked.append("abort")

    def shutdown(self) -> None:
        self.asked.append("shutdown")


class Operation:
    def __init__(self, error: Exception | None = None) -> None:
        self.over = threading.Event()
        self.waited = False
        self._error = error

    def is_completed(self) -> bool:
        return self._error is not None or self.over.is_set()

    def exception(self) -> Exception | None:
        return self._error

    def wait(self) -> None:
        self.waited = True


def test_an_operation_is_waited_for_and_the_stream_after_it() -> None:
    nccl, operation = Nccl(Communicator()), Operation()
    threading.Timer(0.05, operation.over.set).start()
    nccl.wait(operation)
    assert operation.over.is_set()
    assert operation.waited


def test_one_that_is_broken_off_is_over_once_its_kernels_are() -> None:
    communicator, operation = Communicator(), Operation()
    nccl = Nccl(communicator)
    threading.Timer(0.05, nccl.break_off).start()
    with pytest.raises(NcclError):
        nccl.wait(operation)
    assert communicator.asked == ["abort"], "nobody goes on before that"
    assert not operation.waited


def test_a_result_that_came_after_the_break_is_not_trusted() -> None:
    nccl, operation = Nccl(Communicator()), Operation()
    operation.over.set()
    nccl.break_off()
    with pytest.raises(NcclError):
        nccl.wait(operation)


def test_an_error_of_its_own_ends_the_communicator() -> None:
    communicator = Communicator()
    with pytest.raises(NcclError):
        Nccl(communicator).wait(Operation(RuntimeError("remote error")))
    assert communicator.asked == ["abort"]


def test_a_sound_communicator_is_shut_down_and_an_aborted_one_is_not() -> None:
    sound, broken = Communicator(), Communicator()
    Nccl(sound).drop()
    nccl = Nccl(broken)
    nccl.break_off()
    nccl.break_off()
    nccl.drop()
    wait_until(lambda: broken.asked, lambda: "the abort")
    assert (sound.asked, broken.asked) == (["shutdown"], ["abort"])


def start(communicator: Any, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Nccl:
    monkeypatch.setattr(communicators, "prepare_nccl", lambda seconds: None)
    return start_nccl(HashStore(), 0, 2, torch.device("cuda:0"), seconds, lambda store, rank, size: communicator)


def test_connects_without_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    communicator = Communicator(connects_after=3)
    assert start(communicator, 30, monkeypatch).backend is communicator
    assert communicator.asked == ["connect cuda:0"]


def test_ranks_that_do_not_come_are_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    communicator = Communicator(connects_after=10**9)
    with pytest.raises(NcclError, match="did not connect 2 ranks"):
        start(communicator, 0.05, monkeypatch)
    wait_until(lambda: "abort" in communicator.asked, lambda: "the abort")


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NcclError, match="no such device"):
        start(Communicator(refuses=True), 30, monkeypatch)
