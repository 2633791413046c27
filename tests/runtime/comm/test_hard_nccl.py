"""Tests of groups over a communicator that is as unkind as NCCL: see `scripts/hard_nccl.py`.

Real processes are resized and killed; single ranks connect to others that never come.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest
import torch
from tidepool.inherited_environment import NCCL_RECOVERY
from tidepool.protocol import GPU_IS_FULL
from tidepool.torch.comm import nccl as communicators
from tidepool.torch.comm import process_group, shrinking
from tidepool.torch.comm.child import sum_options
from tidepool.torch.comm.nccl import FEW_CHANNELS, Nccl, NcclError, most_channels, start_nccl
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.shrinking import Parent, excluded_ranks, offer, shrunk
from torch.distributed import HashStore, Store

from tests.runtime.groups import together
from tests.runtime.lab import Lab
from tests.runtime.scripts.hard_nccl import ABORT_SECONDS, ROOM, SHRINK, STICKY, STICKY_ERROR, HardNccl
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
    with pytest.raises(NcclError, match=GPU_IS_FULL):
        start_nccl(HashStore(), 0, 1, CPU, 30.0, HardNccl)


@pytest.mark.parametrize(
    ("free", "kept_for_later", "channels"),
    [(1.0, 0.0, None), (0.1, 0.9, None), (0.1, 0.2, FEW_CHANNELS)],
    ids=["room", "room that torch keeps", "no room"],
)
def test_a_communicator_on_a_nearly_full_gpu_has_few_channels(
    free: float, kept_for_later: float, channels: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {"free": free * 1e9, "cached": kept_for_later * 1e9}

    def empty_cache() -> None:
        memory["free"] += memory.pop("cached")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (memory["free"], 80e9))
    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    assert most_channels(torch.device("cuda", 0)) == channels
    assert ("cached" in memory) == (free == 1.0), "torch keeps it where there is room"


@pytest.mark.parametrize(("exchanges", "channels"), [(False, None), (True, FEW_CHANNELS)])
def test_exchanges_of_eight_ranks_need_more_room(
    exchanges: bool, channels: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int | None] = []

    def make_backend(store: Store, rank: int, size: int, channels: int | None) -> None:
        chosen.append(channels)
        raise RuntimeError("enough seen")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2e9, 80e9))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(communicators, "make_backend", make_backend)
    with pytest.raises(NcclError, match="enough seen"):
        start_nccl(HashStore(), 0, 8, torch.device("cuda", 0), 30.0, exchanges=exchanges)
    assert chosen == [channels]


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


#: An abort that takes longer than a rank waits for it: where one is waited for, the rank ends.
ENDLESS = "3600"


@pytest.mark.parametrize(
    ("environment", "shrinks"),
    [
        ({ABORT_SECONDS: ENDLESS}, True),
        pytest.param({SHRINK: "refuses"}, False, marks=pytest.mark.long),
        pytest.param({SHRINK: "none"}, False, marks=pytest.mark.long),
        pytest.param({NCCL_RECOVERY: "abort"}, False, marks=pytest.mark.long),
    ],
    ids=["aborts that never end", "no shrink comes about", "a torch without it", "the site wants none"],
)
def test_a_training_over_it_is_resized_and_survives_deaths(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], environment: dict[str, str], shrinks: bool
) -> None:
    lab = make_lab("hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 3}, environment=environment)
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
    assert ("hard NCCL: shrunk to 2 ranks" in texts(lab)) == shrinks
    assert "hard NCCL: broadcasts" in texts(lab)


def test_survivors_that_lose_their_context_end_and_no_script_is_blamed(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 3}, environment={STICKY: "1"})
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_steps(2)
    victim, *others = lab.member_ids()
    lab.kill(victim)
    wait_until(lambda: set(others) <= lab.exits().keys(), lab.story)
    ends = [lab.exits()[one] for one in others]
    assert [end["error"]["kind"] for end in ends] == ["ContextLost"] * 2
    assert all(STICKY_ERROR in end["error"]["message"] for end in ends)
    assert not any(end["by_script"] for end in ends)


def test_a_communicator_in_a_child_keeps_such_errors_away(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab(
        "hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 3}, environment={STICKY: "1", NCCL_RECOVERY: "process"}
    )
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_steps(2)
    victim, *others = lab.member_ids()
    lab.kill(victim)
    wait_until(lambda: victim not in lab.member_ids(), lab.story)
    lab.wait_for_the_end()
    assert lab.member_ids()[:2] == others
    assert_nothing_lost(lab, reference)


def texts(lab: Lab, member: str = "*") -> str:
    return "".join(path.read_text(errors="replace") for path in lab.folder.glob(f"log/{member}.*/std*"))


def test_a_rank_that_leaves_lets_its_last_data_reach_the_others(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 2})
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(2)
    [_, leaver] = lab.member_ids()
    lab.size(1)
    wait_until(lambda: leaver in lab.exits(), lab.story)
    assert "hard NCCL: shut down" in texts(lab, leaver)


def test_nobody_waits_long_for_an_orderly_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "LEAVE_SECONDS", 0.1)
    door = threading.Event()

    class Slow(HardNccl):
        def shutdown(self) -> None:
            door.wait()

    group = Group(1, 0, 2, _nccl=Nccl(Slow(HashStore(), 0, 2)))
    group.leave()
    assert not door.is_set()
    door.set()


@pytest.fixture
def pair(make_lab: Callable[..., Lab]) -> Lab:
    """Two ranks that train, each with its communicator in a process beside it."""
    process = {NCCL_RECOVERY: "process"}
    lab = make_lab("hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 2}, environment=process, min_slots=2)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(2)
    return lab


def test_a_training_survives_the_end_of_a_ranks_child(pair: Lab, reference: dict[str, torch.Tensor]) -> None:
    ranks, generation = pair.member_ids(), pair.active()["generation"]
    os.kill(child_in_use(pair.started()[ranks[1]]["pid"]), signal.SIGKILL)
    wait_until(lambda: pair.active()["generation"] > generation, pair.story)
    pair.wait_for_the_end()
    assert pair.member_ids() == ranks, "no rank has ended"
    assert_nothing_lost(pair, reference)


def test_a_survivor_whose_child_hangs_goes_on(pair: Lab, reference: dict[str, torch.Tensor]) -> None:
    survivor, victim = pair.member_ids()
    os.kill(child_in_use(pair.started()[survivor]["pid"]), signal.SIGSTOP)
    pair.kill(victim)
    wait_until(lambda: victim not in pair.member_ids(), pair.story)
    pair.wait_for_the_end()
    assert survivor not in {member for member, end in pair.exits().items() if end["signal"]}
    assert_nothing_lost(pair, reference)


def child_in_use(pid: int) -> int:
    """Return the process with the communicator of a rank."""
    [child] = [
        each for each in psutil.Process(pid).children(recursive=True) if "nccl: rank" in " ".join(each.cmdline())
    ]
    return child.pid


@pytest.fixture
def survivors() -> Iterator[list[Nccl]]:
    """Communicators of two ranks that have broken off an operation, in which the third one died."""
    store = HashStore()
    members: list[Nccl] = together(
        *[lambda rank=rank: start_nccl(store, rank, 3, CPU, 30.0, HardNccl) for rank in range(3)]
    )
    for nccl in members[:2]:
        work = nccl.begin("allreduce", [torch.ones(2)], sum_options())
        nccl.break_off()
        with pytest.raises(NcclError):
            nccl.wait(work)
    yield members[:2]
    members[2].wait(members[2].begin("allreduce", [torch.ones(2)], sum_options()))  # else gloo's end waits for it


def cut(survivors: list[Nccl], store: HashStore) -> list[Nccl | None]:
    def one(rank: int) -> Nccl | None:
        parent = Parent(survivors[rank], 7, [2])
        offer(store, rank, parent)
        store.set(f"place/{rank}", "")
        store.wait([f"place/{other}" for other in range(2)])
        return shrunk(store, rank, 2, parent)

    found: list[Nccl | None] = together(*[lambda rank=rank: one(rank) for rank in range(2)])
    return found


def test_survivors_sum_over_what_was_cut_from_the_old_communicator(
    survivors: list[Nccl], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ABORT_SECONDS, ENDLESS)
    assert all(nccl._unfinished for nccl in survivors), "the tensors of what may still write are kept"
    children = [child for child in cut(survivors, HashStore()) if child is not None]
    assert len(children) == 2
    assert not any(nccl._unfinished for nccl in survivors)
    tensors = [torch.full((2,), float(rank + 1)) for rank in range(2)]
    together(
        *[
            lambda rank=rank: children[rank].wait(children[rank].begin("allreduce", [tensors[rank]], sum_options()))
            for rank in range(2)
        ]
    )
    assert [tensor.tolist() for tensor in tensors] == [[3.0, 3.0]] * 2


def test_a_shrink_that_hangs_is_given_up_by_all(survivors: list[Nccl], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "SHRINK_SECONDS", 0.3)
    monkeypatch.setenv(SHRINK, "hangs")
    monkeypatch.setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", "1")
    assert cut(survivors, HashStore()) == [None, None]
    for nccl in survivors:
        nccl.end()  # the mutex is free once the shrink has failed of its own
        assert nccl.is_aborted


def test_none_shrinks_where_one_rank_has_nothing_to_shrink(survivors: list[Nccl]) -> None:
    first, second = survivors
    second.end()
    store = HashStore()
    assert cut([first, second], store) == [None, None]
    assert not first.backend.is_ended
    first.end()


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicators, "_HEIR_SECONDS", 0.2)


def test_a_communicator_that_nobody_shrinks_is_aborted_after_a_while(
    short_patience: None, survivors: list[Nccl]
) -> None:
    for nccl in survivors:
        wait_until(lambda nccl=nccl: nccl.is_aborted, lambda: "the abort")
        assert not nccl.reserve()


@pytest.mark.parametrize(
    ("before", "after", "excluded"),
    [
        ("abcd", "acd", [1]),
        ("abcd", "c", [0, 1, 3]),
        ("abcd", "abcd", []),
        ("abcd", "dca", []),
        ("abcd", "abe", []),
        ("", "ab", []),
    ],
    ids=["one died", "one is left", "nobody died", "another order", "one came", "no names"],
)
def test_what_is_left_of_a_group_shrinks_it(before: str, after: str, excluded: list[int]) -> None:
    assert excluded_ranks(before, after) == excluded


def test_a_word_that_is_no_way_to_recover_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NCCL_RECOVERY, "shirnk")
    with pytest.raises(NcclError, match="set it to one of shrink, abort, process"):
        start_nccl(HashStore(), 0, 1, CPU, 30.0, HardNccl)
