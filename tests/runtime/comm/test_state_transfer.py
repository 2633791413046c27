"""The state on its way: whole or not at all, as it was at the boundary, and nobody is left waiting for it."""

import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tidepool.torch.adaptive.profiler import Profiler
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.reducer import CONTROL_SIZE
from tidepool.torch.comm.shared_transfer import receive_shares, send_share
from tidepool.torch.comm.state_transfer import HandOver, receive_state, send_state
from tidepool.torch.rank.step import Step, StepParts
from tidepool.torch.rank.step_clock import StepClock
from tidepool.torch.state.training_state import Position, TrainingState
from torch import nn

from tests.runtime.groups import groups, together
from tests.runtime.test_soak import held
from tests.waiting import wait_until


def state(seed: int) -> TrainingState:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
    model(torch.randn(4, 4)).sum().backward()
    optimizer.step()
    return TrainingState(model, {"": optimizer}, {}, Position(step=seed, operation=seed))


def wide_state() -> TrainingState:
    """16 MB: more than any pair of socket buffers holds."""
    model = nn.Linear(2000, 2000)
    return TrainingState(model, {"": torch.optim.SGD(model.parameters(), lr=0.1)}, {}, Position())


def contents(one: TrainingState) -> tuple[Any, list[torch.Tensor]]:
    structure, tensors = one.pack()
    return structure, [tensor.clone() for tensor in tensors]


def equal(one: tuple[Any, list[torch.Tensor]], other: tuple[Any, list[torch.Tensor]]) -> bool:
    return one[0] == other[0] and all(a.equal(b) for a, b in zip(one[1], other[1], strict=True))


@pytest.mark.parametrize("in_place", [True, False])
def test_a_joiner_gets_the_state_of_the_boundary_though_the_holder_computes_on(in_place: bool) -> None:
    holder, joiner = state(1), state(2)
    expected = contents(holder)
    with groups(2) as [first, second]:
        snapshot = holder.snapshot()
        holder.model(torch.randn(4, 4))  # changes the batch statistics
        holder.position.step += 1
        hand_over = HandOver(first, partial(send_state, first, snapshot, 1))
        receive_state(second, joiner, in_place=in_place)
        hand_over.wait()

    assert equal(contents(joiner), expected)
    assert not equal(contents(holder), expected)


@pytest.mark.parametrize("said", [b"", b'{"kind":"Hello"}' + bytes(64)], ids=["nothing", "something"])
def test_whoever_else_connects_to_a_joiner_is_sent_away(said: bytes) -> None:
    """A port may have been another process's before, and some rank of another job may still look for that one."""
    holder, joiner = state(1), state(2)
    with groups(2) as [first, second]:
        with socket.create_connection(second._listener.getsockname()) as stranger:
            stranger.sendall(said)
            if not said:
                stranger.shutdown(socket.SHUT_WR)
            hand_over = HandOver(first, partial(send_state, first, holder.snapshot(), 1))
            receive_state(second, joiner, in_place=True)
            hand_over.wait()
        assert not first.broken
    assert equal(contents(joiner), contents(holder))


def test_tensors_arrive_in_the_parameters_themselves() -> None:
    holder, joiner = state(1), state(2)
    places = [tensor.data_ptr() for tensor in joiner.model.state_dict().values()]
    with groups(2) as [first, second]:
        hand_over = HandOver(first, partial(send_state, first, holder.snapshot(), 1))
        receive_state(second, joiner, in_place=True)
        hand_over.wait()

    assert [tensor.data_ptr() for tensor in joiner.model.state_dict().values()] == places
    assert equal(contents(joiner), contents(holder))
    joiner.optimizers[""].step()


def test_parameters_that_change_on_the_way_are_never_used() -> None:
    holder, joiner = wide_state(), wide_state()
    before = contents(joiner)
    with groups(2) as [first, second], torch.no_grad():
        snapshot = holder.snapshot()
        holder.model.weight.clamp_(-0.01, 0.01)
        hand_over = HandOver(first, partial(send_state, first, snapshot, 1))
        with pytest.raises(CommunicationError, match="its sender went away"):
            receive_state(second, joiner, in_place=False)
        hand_over.wait()
        assert first.broken, "the holder's training thread recovers"

    assert equal(contents(joiner), before)


def test_a_joiner_that_goes_away_releases_the_sender() -> None:
    holder = wide_state()
    with groups(2) as [first, second]:
        hand_over = HandOver(first, partial(send_state, first, holder.snapshot(), 1))
        second.accept().close()
        hand_over.wait()
        assert first.broken


def test_breaking_off_releases_both_ends() -> None:
    holder, joiner = wide_state(), wide_state()
    with groups(2) as [first, second]:

        def accept_and_break_off() -> None:
            with second.accept():
                first.break_off()

        with pytest.raises(CommunicationError):
            together(lambda: send_state(first, holder.snapshot(), 1), accept_and_break_off)
        second.break_off()
        with pytest.raises(CommunicationError):
            receive_state(second, joiner, in_place=False)


def test_breaking_off_leaves_another_address_with_the_same_port_alone() -> None:
    with groups(2) as [first, _], socket.create_server(("127.0.0.2", 0)) as server:
        first._gloo_places |= {("127.0.0.1", server.getsockname()[1])}
        with socket.create_connection(server.getsockname()) as stranger, server.accept()[0] as accepted:
            first.break_off()
            stranger.sendall(b"here")
            assert accepted.recv(4) == b"here"


def by_copy(holder: TrainingState, joiner: TrainingState) -> None:
    with groups(2) as [first, second]:
        hand_over = HandOver(first, partial(send_state, first, holder.snapshot(), 1))
        receive_state(second, joiner, in_place=True)
        hand_over.wait()


def by_routes(holder: TrainingState, joiner: TrainingState) -> None:
    with groups(4) as [first, second, *new]:
        hand_overs = [
            HandOver(group, partial(send_share, group, holder.snapshot(), [2, 3])) for group in (first, second)
        ]
        pairs = zip(new, (joiner, state(3)), strict=True)
        together(*[partial(receive_shares, group, one, [2, 3], in_place=True) for group, one in pairs])
        for hand_over in hand_overs:
            hand_over.wait()


@pytest.mark.long
@pytest.mark.parametrize("handed_over", [by_copy, by_routes])
def test_a_hundred_generations_leave_no_descriptor_thread_or_memory_behind(
    handed_over: Callable[[TrainingState, TrainingState], None],
) -> None:
    holder, joiner = state(1), state(2)
    before = (0, 0, 0)
    for number in range(120):
        handed_over(holder, joiner)
        if number == 20:
            before = wait_until(settled, lambda: "the first groups' end")
    after = wait_until(
        lambda: (now := held(os.getpid()))[0] <= before[0] and now[1] <= before[1] and now,
        lambda: str(held(os.getpid())),
    )

    assert after[2] < before[2] + 20_000, "kilobytes of memory"


def settled() -> tuple[int, int, int] | None:
    """Return what this process holds, once no group is being dropped any more."""
    dropping = any(thread.name.startswith("drop-generation") for thread in threading.enumerate())
    return None if dropping else held(os.getpid())


class Logged:
    """A step that has been computed by one rank, with nothing but metrics."""

    def __init__(self, known: list[str], **values: float) -> None:
        self.position = Position(metric_names=[*known])
        self.reducer: Any = SimpleNamespace(control=torch.zeros(CONTROL_SIZE))
        nothing: Any = None
        shared = StepParts(0, self.position, self.reducer, nothing, nothing, Profiler(torch.device("cpu")), StepClock())
        feed: Any = SimpleNamespace(look_ahead=lambda: None)
        self.step = Step(shared, feed, list(range(4)), [], torch.device("cpu"))
        self.step._share = 0.5
        self.step.log(**values)

    def summed(self, group: Group) -> dict[str, float]:
        self.step.complete(0)
        control = self.reducer.control
        group.wait(group.all_reduce(control))
        values = control.tolist()
        self.step.agree_on_names(values, group)
        return self.step.metrics(values)


def test_metrics_that_ranks_log_in_different_orders_are_summed_by_their_names() -> None:
    ranks = [Logged([], accuracy=0.5, recall=0.25), Logged([], recall=0.75, accuracy=1.0), Logged([])]
    with groups(3) as members:
        results = together(*[lambda pair=pair: pair[0].summed(pair[1]) for pair in zip(ranks, members, strict=True)])

    assert results == [{"loss": 0.0, "accuracy": 0.75, "recall": 0.5}] * 3
    assert [rank.position.metric_names for rank in ranks] == [["accuracy", "recall"]] * 3


def test_a_metric_that_one_rank_alone_logs_takes_no_others_place() -> None:
    ranks = [Logged(["accuracy"], accuracy=1.0, seen=8.0), Logged(["accuracy"], accuracy=0.5, late=2.0)]
    with groups(2) as members:
        results = together(*[lambda pair=pair: pair[0].summed(pair[1]) for pair in zip(ranks, members, strict=True)])

    assert results == [{"loss": 0.0, "accuracy": 0.75, "late": 1.0, "seen": 4.0}] * 2


def test_too_many_or_too_long_names_are_refused() -> None:
    step = Logged([], **{f"metric_{number}": 1.0 for number in range(29)})
    with pytest.raises(ValueError, match="at most 28 metrics"):
        step.summed(Group(1, 0, 1))
    with pytest.raises(ValueError, match="at most 64 bytes"):
        Logged([], **{"n" * 65: 1.0})


def test_state_that_cannot_travel_is_named() -> None:
    broken: Any = SimpleNamespace(state_dict=lambda: {"seen": {1, 2}})
    one = state(1)
    one.registered["counter"] = broken
    with pytest.raises(TypeError, match=r"\['registered'\]\['counter'\]\['seen'\] is a set"):
        one.pack()
