"""Tests of NCCL in a child process: over the stand-in of `scripts/hard_nccl.py`, in real processes."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
from tidepool.torch.comm import child_process
from tidepool.torch.comm.child_process import ChildBackend, maker
from tidepool.torch.comm.meeting import StorePlace
from tidepool.torch.comm.nccl import Nccl, NcclError, start_nccl
from torch.distributed import TCPStore

from tests.runtime.groups import together
from tests.runtime.lab import SCRIPTS
from tests.waiting import wait_until

CPU = torch.device("cpu")
#: Limit of a connect: children import torch first, on a busy machine.
CONNECT_SECONDS = 120.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[TCPStore]:
    monkeypatch.setattr(child_process, "FACTORY", "hard_nccl:HardNccl")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    nursery = child_process.Nursery()
    monkeypatch.setattr(child_process, "_nursery", nursery)
    yield TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=CONNECT_SECONDS), wait_for_workers=False)
    nursery.close()


@contextmanager
def connected(store: TCPStore, prefix: str) -> Iterator[list[Nccl]]:
    """Two ranks' communicators, each in a child."""
    place = StorePlace("127.0.0.1", store.port, "", prefix)
    make = maker(place, CONNECT_SECONDS)
    made: list[Nccl] = together(
        *[lambda rank=rank: start_nccl(store, rank, 2, CPU, CONNECT_SECONDS, make) for rank in range(2)]
    )
    try:
        yield made
    finally:
        for nccl in made:
            nccl.end()


def child_of(nccl: Nccl) -> ChildBackend:
    assert isinstance(nccl.backend, ChildBackend)
    return nccl.backend


def sums(members: list[Nccl]) -> list[float]:
    tensors = [torch.full((4,), float(rank + 1)) for rank in range(2)]

    def one(rank: int) -> None:
        members[rank].wait(members[rank].begin("allreduce", [tensors[rank]], None))

    together(*[lambda rank=rank: one(rank) for rank in range(2)])
    return [tensor[0].item() for tensor in tensors]


def test_operations_of_children_change_the_ranks_own_tensors(store: TCPStore) -> None:
    with connected(store, "a") as members:
        assert sums(members) == [3.0, 3.0]
        gathered = [torch.zeros(4) for _ in range(2)]
        received = [torch.zeros(2) for _ in range(2)]

        def more(rank: int) -> None:
            nccl, own = members[rank], torch.tensor([10.0 * rank, 10.0 * rank + 1])
            nccl.wait(nccl.begin("_allgather_base", gathered[rank], own))
            nccl.wait(nccl.begin("alltoall_base", received[rank], own, [1, 1], [1, 1]))

        together(*[lambda rank=rank: more(rank) for rank in range(2)])
        assert [tensor.tolist() for tensor in gathered] == [[0.0, 1.0, 10.0, 11.0]] * 2
        assert [tensor.tolist() for tensor in received] == [[0.0, 10.0], [1.0, 11.0]]


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("harm", [killed, stopped], ids=["a child is killed", "a child hangs"])
def test_a_rank_survives_its_child_and_goes_on(store: TCPStore, harm: Callable[[int], None]) -> None:
    with connected(store, "b") as members:
        first, second = members
        work = first.begin("allreduce", [torch.ones(4)], None)  # the other one never comes
        harm(child_of(first).pid)
        broken = threading.Timer(0.2, first.break_off)  # the coordinator's message does the same
        broken.start()
        with pytest.raises(NcclError):
            first.wait(work)
        first.end()
        assert child_of(first)._child.wait(0.0), "it is gone"
        second.break_off()
        second.end()
    with connected(store, "c") as members:
        assert sums(members) == [3.0, 3.0]


def test_a_child_that_ends_by_itself_fails_what_is_in_flight(store: TCPStore) -> None:
    with connected(store, "d") as members:
        work = members[0].begin("allreduce", [torch.ones(4)], None)
        killed(child_of(members[0]).pid)
        with pytest.raises(NcclError):
            members[0].wait(work)
        with pytest.raises(RuntimeError, match="NCCL's process has ended"):
            members[0].begin("allreduce", [torch.ones(4)], None)


def test_ranks_that_do_not_come_are_given_up_and_leave_no_child(store: TCPStore) -> None:
    place = StorePlace("127.0.0.1", store.port, "", "e")
    made: list[ChildBackend] = []

    def make(own: object, rank: int, size: int) -> ChildBackend:
        made.append(ChildBackend(place, rank, size, CONNECT_SECONDS))
        return made[0]

    with pytest.raises(NcclError, match="did not connect 2 ranks"):
        start_nccl(store, 0, 2, CPU, 1.0, make)
    wait_until(lambda: made[0]._child.wait(0.0), lambda: "the child")


def test_a_child_leaves_in_order_with_its_group(store: TCPStore) -> None:
    with connected(store, "f") as members:
        assert sums(members) == [3.0, 3.0]
        for nccl in members:
            nccl.drop()
        assert all(child_of(nccl)._child.wait(0.0) for nccl in members)


def test_a_refusal_of_the_child_is_told(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "FACTORY", "hard_nccl:missing")
    make = maker(StorePlace("127.0.0.1", store.port, "", "g"), CONNECT_SECONDS)
    begun = time.monotonic()
    with pytest.raises(NcclError, match="missing"):
        start_nccl(store, 0, 2, CPU, CONNECT_SECONDS, make)
    assert time.monotonic() - begun < CONNECT_SECONDS


def test_a_nursery_that_fails_ends_with_an_error_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(title: str) -> None:
        raise OSError("no room for a title")

    monkeypatch.setattr(child_process, "set_title", fail)
    nursery = child_process.Nursery()
    own, other = socket.socketpair()
    with own, other, pytest.raises(RuntimeError, match=r"NCCL's has ended: OSError: no room for a title"):
        nursery.start(other)
    assert os.waitstatus_to_exitcode(os.waitpid(nursery.pid, 0)[1]) == 1
    nursery.close()


def test_a_nursery_that_is_killed_is_told_so() -> None:
    nursery = child_process.Nursery()
    killed(nursery.pid)
    os.waitpid(nursery.pid, 0)
    own, other = socket.socketpair()
    with own, other, pytest.raises(RuntimeError, match=r"NCCL's has ended: it was killed"):
        nursery.start(other)
    nursery.close()
