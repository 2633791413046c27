"""The state by broadcasts of a communicator: the same bytes, before any sum, and sockets after a failure.

The communicator is the hard NCCL of `scripts/hard_nccl.py`, for which tensors in main memory are a GPU's.
"""

import threading
from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
from tidepool.inherited_environment import NCCL_RECOVERY, NCCL_STATE
from tidepool.torch.comm import broadcasts, nccl, process_group
from tidepool.torch.comm.broadcasts import broadcasts_of
from tidepool.torch.comm.nccl import Nccl, start_nccl, takes_broadcasts
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.reducer import SumReducer
from tidepool.torch.comm.routes import MOST_ROUTES, routes_of
from tidepool.torch.comm.shared_transfer import receive_shares, send_share
from tidepool.torch.comm.state_transfer import HandOver
from tidepool.torch.state.training_state import TrainingState
from torch import nn
from torch._C._distributed_c10d import Store

from tests.runtime.comm.test_hard_nccl import own_environment, texts
from tests.runtime.comm.test_shared_transfer import SIZES, fails, wide_state
from tests.runtime.comm.test_state_transfer import contents, equal, state
from tests.runtime.groups import groups, together
from tests.runtime.lab import Lab
from tests.runtime.scripts.hard_nccl import HardNccl, HardWork
from tests.runtime.test_failures import assert_nothing_lost
from tests.runtime.test_live_resize import ARGUMENTS, reference
from tests.waiting import wait_until

__all__ = ["own_environment", "reference"]


class LateWork:
    """An operation that reads and writes its tensors only when somebody waits for it."""

    def __init__(self, begin: Callable[[], HardWork]) -> None:
        self._begin = cache(begin)

    def is_completed(self) -> bool:
        return bool(self._begin().is_completed())

    def exception(self) -> Exception | None:
        return self._begin().exception()

    def wait(self) -> None:
        self._begin().wait()


class LateNccl(HardNccl):
    def broadcast(self, tensors: list[torch.Tensor], options: object) -> LateWork:  # type: ignore[override]
        return LateWork(partial(super().broadcast, tensors, options))


class EndlessWork:
    def is_completed(self) -> bool:
        return False


class EndlessNccl(HardNccl):
    """A communicator for whose broadcasts some rank never comes."""

    def broadcast(self, tensors: list[torch.Tensor], options: object) -> EndlessWork:  # type: ignore[override]
        self.broadcasts += 1
        return EndlessWork()


@pytest.fixture(params=[HardNccl, LateNccl], ids=["at once", "late"])
def on_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(request.param, monkeypatch)


@pytest.fixture
def on_gpus_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(EndlessNccl, monkeypatch)


def give_gpus(communicator: type[HardNccl], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each member of a group a GPU, with this kind of communicator."""
    monkeypatch.setattr(nccl, "_failed_broadcasts", [])
    monkeypatch.setattr(process_group, "_on_gpu", lambda tensors: True)
    monkeypatch.setattr(process_group, "backend_for", lambda names: "nccl")

    def start(
        store: Store, rank: int, size: int, device: torch.device, seconds: float, make: object = None, **how: bool
    ) -> Nccl:
        return start_nccl(store, rank, size, device, seconds, communicator, **how)

    monkeypatch.setattr(process_group, "start_nccl", start)


def broadcasts_on(member: Group) -> int:
    """Return how many a member's communicator has begun."""
    assert member._nccl is not None
    return int(member._nccl.backend.broadcasts)


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcasts, "BUFFER_BYTES", 200)


def begun(members: list[Group], holders: list[TrainingState], joiners: range) -> list[HandOver]:
    pairs = zip(members, holders, strict=False)
    return [HandOver(member, partial(send_share, member, one.snapshot(), joiners)) for member, one in pairs]


def handed_over(members: list[Group], holders: list[TrainingState], joiners: list[TrainingState]) -> list[list[float]]:
    """Hand the state over while each holder begins its step's sum at once; return that sum on each rank."""
    new = range(len(holders), len(members))
    hand_overs = begun(members, holders, new)

    def summed(member: Group) -> list[float]:
        tensor = torch.full((3,), float(member.rank + 1))
        member.wait(member.all_reduce(tensor))
        return tensor.tolist()

    def joined(member: Group, one: TrainingState) -> list[float]:
        receive_shares(member, one, new, in_place=True)
        return summed(member)

    pairs = zip(members[len(holders) :], joiners, strict=True)
    sums = together(
        *[partial(summed, member) for member in members[: len(holders)]],
        *[partial(joined, member, one) for member, one in pairs],
    )
    for hand_over in hand_overs:
        hand_over.wait()
    return sums


@pytest.mark.parametrize(("old", "new"), SIZES)
def test_joiners_get_the_state_before_any_sum(on_gpus: None, small_buffers: None, old: int, new: int) -> None:
    holders, joiners = [state(1) for _ in range(old)], [state(2) for _ in range(new)]
    expected = contents(holders[0])
    with groups(old + new) as members:
        assert all(member.broadcasts for member in members)
        sums = handed_over(members, holders, joiners)
        assert all(broadcasts_on(member) > 1 for member in members)
    assert sums == [[sum(range(1, old + new + 1))] * 3] * (old + new)
    assert all(equal(contents(joiner), expected) for joiner in joiners)


def test_large_tensors_arrive_to_the_bit(on_gpus: None) -> None:
    holders, joiners = [wide_state(1) for _ in range(2)], [wide_state(2) for _ in range(2)]
    expected = contents(holders[0])
    with groups(4) as members:
        handed_over(members, holders, joiners)
    assert all(equal(contents(joiner), expected) for joiner in joiners)


def test_holders_without_a_route_take_part(on_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidepool.torch.comm.routes.MOST_ROUTES", 1)
    holders, joiner = [state(1) for _ in range(3)], state(2)
    expected = contents(holders[0])
    with groups(4) as members:
        handed_over(members, holders, [joiner])
    assert equal(contents(joiner), expected)


def test_parameters_that_change_meanwhile_are_never_used(on_gpus: None) -> None:
    holder, joiner = state(1), state(2)
    before = contents(joiner)
    with groups(2) as members, torch.no_grad():
        snapshot = holder.snapshot()
        next(holder.model.parameters()).add_(1.0)
        hand_over = HandOver(members[0], partial(send_share, members[0], snapshot, [1]))
        with pytest.raises(CommunicationError):
            receive_shares(members[1], joiner, [1], in_place=False)
        hand_over.wait()
        assert members[0].broken
    assert equal(contents(joiner), before)


def test_joiners_of_holders_with_different_states_begin_no_broadcast(on_gpus_without_end: None) -> None:
    first, other, joiner = state(1), state(1), state(2)
    other.optimizers = {"": torch.optim.SGD(other.model.parameters(), lr=0.1)}
    with groups(3) as members:
        hand_overs = begun(members, [first, other], range(2, 3))
        with pytest.raises(RuntimeError, match="different parameters or optimizer states"):
            receive_shares(members[2], joiner, [2], in_place=False)
        assert broadcasts_on(members[2]) == 0
        for member in members:
            member.break_off()
        for hand_over in hand_overs:
            hand_over.wait()


def test_after_a_failure_groups_use_sockets(on_gpus_without_end: None, capfd: pytest.CaptureFixture[str]) -> None:
    holder, joiner = state(1), state(2)
    expected = contents(holder)
    with groups(2) as members:
        hand_overs = begun(members, [holder], range(1, 2))
        thread = threading.Thread(target=sum_that_fails, args=(members[0],))
        thread.start()
        receiving = threading.Thread(target=fails, args=(members[1], state(2), [1]))
        receiving.start()
        wait_until(lambda: all(map(broadcasts_on, members)), "the first broadcast")
        for member in members:
            member.break_off()
        receiving.join(60.0)
        thread.join(60.0)
        assert not thread.is_alive()
        for hand_over in hand_overs:
            hand_over.wait()
    assert not takes_broadcasts()
    assert "the state goes by sockets from now on" in capfd.readouterr().err
    with groups(2) as members:
        assert not any(member.broadcasts for member in members)
        assert all(member._nccl is not None for member in members)
        handed_over(members, [holder], [joiner])
        assert broadcasts_on(members[0]) == 0
    assert equal(contents(joiner), expected)


def sum_that_fails(member: Group) -> None:
    with pytest.raises(CommunicationError):
        member.wait(member.all_reduce(torch.ones(1)))


def test_one_member_that_takes_no_broadcasts_decides_for_all(on_gpus: None) -> None:
    with groups(2) as members:
        former = members[0]._places[1]
        members[0]._places[1] = former._replace(token=former.token.replace("-broadcasts", ""))
        assert not members[0].broadcasts
        assert members[0].has_routes


@pytest.mark.parametrize(
    ("variables", "takes"),
    [
        ({}, True),
        ({NCCL_STATE: "sockets"}, False),
        ({NCCL_STATE: "broadcast"}, True),
        ({NCCL_RECOVERY: "process"}, False),
    ],
)
def test_operators_choose_the_way(variables: dict[str, str], takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_failed_broadcasts", [])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert takes_broadcasts() == takes


def test_a_word_that_is_no_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NCCL_STATE, "socket")
    with pytest.raises(RuntimeError, match="set it to one of broadcast, sockets"):
        takes_broadcasts()


@pytest.mark.parametrize("holders", [1, 3, MOST_ROUTES + 2])
def test_each_byte_is_broadcast_once_and_shares_are_alike(small_buffers: None, holders: int) -> None:
    sizes = [7, 0, 40_000, 1, 199, 12_345, 30_000]
    planned = broadcasts_of(sizes, routes_of(range(holders), range(holders, holders + 2)))
    seen = [piece for broadcast in planned for piece in broadcast.pieces]
    for number, size in enumerate(sizes):
        places = sorted((piece.start, piece.end) for piece in seen if piece.tensor == number)
        assert [start for start, _ in places] == [0, *(end for _, end in places[:-1])][: len(places)]
        assert sum(end - start for start, end in places) == size
    assert max(broadcast.size for broadcast in planned) <= broadcasts.BUFFER_BYTES
    roots = range(min(holders, MOST_ROUTES))
    parts = [sum(broadcast.size for broadcast in planned if broadcast.root == root) for root in roots]
    assert max(parts) - min(parts) <= 2 * broadcasts.BUFFER_BYTES


def test_gradients_wait_in_their_buckets_while_the_state_is_broadcast(on_gpus: None) -> None:
    """A bucket that is begun in the backward would hold the backward up."""
    model = nn.Linear(4, 4)
    with groups(2) as [first, second]:
        reducers = [SumReducer(model.parameters()), SumReducer(nn.Linear(4, 4).parameters())]
        first.sums_may_begin.clear()
        for reducer, member in zip(reducers, (first, second), strict=True):
            reducer._overlaps = True
            reducer.begin(member, [0, 1])
        reducers[0].expect_last_backward()
        model(torch.ones(1, 4)).sum().backward()
        assert not any(bucket.launched for bucket in reducers[0].buckets)
        first.sums_may_begin.set()
        together(*[reducer.finish for reducer in reducers])
        assert all(bucket.launched for bucket in reducers[0].buckets)


@pytest.mark.parametrize(("victim", "passage"), [("a.0.1", 2), ("a.2.", 1)], ids=["one of two holders", "the joiner"])
def test_a_training_survives_a_death_in_a_broadcast(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], victim: str, passage: int
) -> None:
    """The first holder is alone when it hands the state over for the first time."""
    fault = {"TIDEPOOL_FAULT": f"broadcast@{victim}:{passage}:kill"}
    lab = make_lab("hard_mlp.py", arguments=ARGUMENTS, sizes={"a": 3}, environment=fault)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(2)
    lab.size(3)
    wait_until(lambda: any(member.startswith(victim) for member in lab.exits()), lab.story)
    lab.wait_for_the_end()
    assert_nothing_lost(lab, reference)
    assert "the state goes by sockets from now on" in texts(lab)
