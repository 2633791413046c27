"""Tests of groups over a communicator that is as unkind as NCCL: see `scripts/hard_nccl.py`.

Real processes are resized and killed; single ranks connect to others that never come.
"""

import os
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from tidepool.torch.comm import nccl as communicators
from tidepool.torch.comm import process_group
from tidepool.torch.comm.nccl import Nccl, NcclError, start_nccl
from tidepool.torch.comm.process_group import Group
from torch.distributed import HashStore

from tests.runtime.lab import Lab
from tests.runtime.scripts.hard_nccl import ROOM, HardNccl
from tests.runtime.test_failures import assert_nothing_lost
from tests.runtime.test_live_resize import ARGUMENTS, reference
from tests.waiting import wait_until

__all__ = ["reference"]

CPU = torch.device("cpu")
SWITCHES = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": "30",
    "NCCL_RUNTIME_CONNECT": "0",
    "NCCL_CUMEM_ENABLE": "1",
}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in SWITCHES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(communicators, "_leaked", [])
    yield
    for name in SWITCHES:
        os.environ.pop(name, None)


class Deaf(HardNccl):
    """A connect that waits for others until the test opens the door."""

    door = threading.Event()

    def eager_connect_single_device(self, device: torch.device) -> None:
        with self.mutex:
            self.door.wait()
        raise RuntimeError("nobody came")


@pytest.fixture
def deaf() -> Iterator[type[Deaf]]:
    Deaf.door = threading.Event()
    yield Deaf
    Deaf.door.set()


def test_its_switches_are_set_before_the_first_communicator() -> None:
    start_nccl(HashStore(), 0, 1, CPU, 30.0, HardNccl)
    assert {name: os.environ.get(name) for name in SWITCHES} == SWITCHES


def test_what_the_operator_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_CUMEM_ENABLE", "0")
    monkeypatch.setenv("NCCL_RUNTIME_CONNECT", "1")
    start_nccl(HashStore(), 0, 1, CPU, 30.0, HardNccl)
    assert (os.environ["NCCL_CUMEM_ENABLE"], os.environ["NCCL_RUNTIME_CONNECT"]) == ("0", "1")


def test_a_connect_that_holds_its_mutex_is_given_up_in_time(deaf: type[Deaf]) -> None:
    with pytest.raises(NcclError, match="did not connect 2 ranks"):
        start_nccl(HashStore(), 0, 2, CPU, 0.2, deaf)
    assert not deaf.door.is_set(), "it is still blocked, and so is its abort"


def test_a_rank_with_several_connects_that_never_end_is_ended(
    deaf: type[Deaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(communicators, "end_at_once", ended.append)
    for _ in range(communicators.MOST_LEAKED + 1):
        with pytest.raises(NcclError):
            start_nccl(HashStore(), 0, 2, CPU, 0.05, deaf)
    assert len(ended) == 1
    assert "never ended" in ended[0]


def test_a_full_gpu_is_said_to_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOM, "0")
    with pytest.raises(NcclError, match="the GPU's memory is full"):
        start_nccl(HashStore(), 0, 1, CPU, 30.0, HardNccl)


def test_a_rank_that_hangs_in_a_launch_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "_on_gpu", lambda tensors: True)
    started, door = threading.Event(), threading.Event()

    class Stuck(HardNccl):
        def allreduce(self, tensors: list[torch.Tensor], options: object) -> None:  # type: ignore[override]
            started.set()
            door.wait()

    group = Group(1, 0, 2, _backend=object(), _nccl=Nccl(Stuck(HashStore(), 0, 2)))  # type: ignore[arg-type]
    thread = threading.Thread(target=group.all_reduce, args=(torch.zeros(1),), daemon=True)
    thread.start()
    assert started.wait(60.0)
    assert group.waiting_since is not None
    door.set()
    thread.join(60.0)
    assert group.waiting_since is None


def test_waiting_within_waiting_ends_with_the_outer_block() -> None:
    group = Group(1, 0, 1)
    with group.waiting():
        since = group.waiting_since
        with group.waiting():
            assert group.waiting_since == since
        assert group.waiting_since == since
    assert group.waiting_since is None


def test_a_training_over_it_is_resized_and_survives_deaths(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab("hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 3})
    lab.size(1)
    lab.wait_for_steps(2)
    for size in (3, 2, 3):
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(2)
    before = lab.member_ids()
    lab.kill(before[1])
    wait_until(lambda: before[1] not in lab.member_ids(), lab.story)
    lab.wait_for_steps(2)
    lab.wait_for_the_end()
    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)
