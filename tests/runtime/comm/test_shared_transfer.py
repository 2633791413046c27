"""The state by several holders at once: the same bytes, whole or not at all, and nobody is left waiting for it."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from tidepool.torch.comm import shared_transfer
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.routes import PIECE_BYTES
from tidepool.torch.comm.shared_transfer import receive_shares, send_share
from tidepool.torch.comm.staging import Ring, SideStream
from tidepool.torch.comm.state_transfer import HandOver, receive_state, send_state
from tidepool.torch.state.training_state import Position, TrainingState
from torch import nn

from tests.runtime.comm.test_state_transfer import contents, equal, state
from tests.runtime.groups import groups, together

JOINERS = [2, 3, 4]
SIZES = [(1, 1), (1, 3), (3, 1), (2, 3), (4, 4)]


def wide_state(seed: int) -> TrainingState:
    """A state of some 50 MB with Adam's, in tensors of many pieces, of one, and of a single number."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2000, 2000), nn.BatchNorm1d(2000), nn.Linear(2000, 3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 2000)).sum().backward()
    optimizer.step()
    return TrainingState(model, {"": optimizer}, {}, Position(step=seed, operation=seed))


def stages_all(_: torch.Tensor) -> bool:
    """Treat main memory as a device's."""
    return True


class LateStream(SideStream):
    """A stream whose copies are made only when an event behind them is waited for, as a busy GPU may do it."""

    def __init__(self) -> None:
        super().__init__()
        self._left: deque[tuple[torch.Tensor, torch.Tensor]] = deque()
        self._begun = self._made = 0

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> "LateEvent":
        self._left.append((target, source))
        self._begun += 1
        return LateEvent(self, self._begun)

    def catch_up(self, count: int) -> None:
        while self._made < count:
            target, source = self._left.popleft()
            target.copy_(source)
            self._made += 1


@dataclass(frozen=True)
class LateEvent:
    stream: LateStream
    count: int

    def synchronize(self) -> None:
        self.stream.catch_up(self.count)


def handed_over(
    members: list[Group],
    holders: list[TrainingState],
    joiners: list[TrainingState],
    in_place: bool,
    staged: bool,
    stream: type[SideStream] = SideStream,
) -> None:
    ring = (lambda: Ring(stages=stages_all, stream=stream())) if staged else (lambda: None)
    new = range(len(holders), len(members))
    hand_overs = [
        HandOver(member, partial(send_share, member, one.snapshot(), new, "", ring()))
        for member, one in zip(members, holders, strict=False)
    ]
    for one in holders:  # go on with the next step
        one.model(torch.randn(4, next(one.model.parameters()).shape[1]))
        one.position.step += 1
    receive = partial(receive_shares, in_place=in_place)
    pairs = zip(members[len(holders) :], joiners, strict=True)
    # A ring serves one thread, and a joiner with one route has one.
    further: dict[str, Any] = {"ring": ring()} if staged and len(holders) == 1 else {}
    together(*[partial(receive, member, one, new, **further) for member, one in pairs])
    for hand_over in hand_overs:
        hand_over.wait()


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_joiners_get_the_state_of_the_boundary_though_the_holders_compute_on(
    old: int, new: int, in_place: bool
) -> None:
    holders, joiners = [state(1) for _ in range(old)], [state(2) for _ in range(new)]
    expected = contents(holders[0])
    with groups(old + new) as members:
        handed_over(members, holders, joiners, in_place, staged=False)
        assert not any(member.broken for member in members)

    assert all(equal(contents(joiner), expected) for joiner in joiners)
    assert not equal(contents(holders[0]), expected)


@pytest.mark.parametrize(("old", "new"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("staged", [False, True], ids=["own-memory", "through-buffers"])
def test_large_tensors_arrive_to_the_bit(old: int, new: int, staged: bool) -> None:
    holders, joiners = [wide_state(1) for _ in range(old)], [wide_state(2) for _ in range(new)]
    expected = contents(holders[0])
    assert max(tensor.numel() * 4 for tensor in expected[1]) > 3 * PIECE_BYTES
    with groups(old + new) as members:
        handed_over(members, holders, joiners, in_place=True, staged=staged)
    assert all(equal(contents(joiner), expected) for joiner in joiners)


def test_no_buffer_is_used_before_the_copy_that_it_is_in() -> None:
    holder, joiner = wide_state(1), wide_state(2)
    expected = contents(holder)
    with groups(2) as members:
        handed_over(members, [holder], [joiner], in_place=True, staged=True, stream=LateStream)
    assert equal(contents(joiner), expected)


def test_a_hand_over_takes_two_buffers() -> None:
    holder, joiner, sends, receives = wide_state(1), wide_state(2), Ring(stages=stages_all), Ring(stages=stages_all)
    with groups(2) as [first, second]:
        hand_over = HandOver(first, partial(send_share, first, holder.snapshot(), [1], "", sends))
        receive_shares(second, joiner, [1], in_place=True, ring=receives)
        hand_over.wait()

    for ring in (sends, receives):
        assert [buffer.memory.numel() for buffer in ring._buffers] == [PIECE_BYTES] * 2
    assert equal(contents(joiner), contents(holder))


@pytest.mark.parametrize("who", [0, 1], ids=["the first holder", "another holder"])
def test_of_several_holders_one_dies_halfway(who: int, monkeypatch: pytest.MonkeyPatch) -> None:
    holders, joiners = [wide_state(1) for _ in range(3)], [wide_state(2) for _ in range(2)]
    before = contents(joiners[0])

    def die(name: str, member_id: str) -> None:
        if (name, member_id) == ("transfer", f"holder {who}"):
            raise CommunicationError("died halfway")

    monkeypatch.setattr(shared_transfer, "fault", die)
    with groups(5) as members:
        hand_overs = [
            HandOver(member, partial(send_share, member, one.snapshot(), [3, 4], f"holder {number}"))
            for number, (member, one) in enumerate(zip(members, holders, strict=False))
        ]
        pairs = zip(members[3:], joiners, strict=True)
        assert all(together(*[partial(fails, member, one, [3, 4]) for member, one in pairs]))
        for hand_over in hand_overs:
            hand_over.wait()
        assert members[who].broken
    assert equal(contents(joiners[0]), before), "nothing of it was used"


def fails(member: Group, joiner: TrainingState, new: Sequence[int], member_id: str = "") -> bool:
    """Receive, which fails, and drop the group, as a process does that has not joined."""
    with pytest.raises(CommunicationError):
        receive_shares(member, joiner, new, in_place=False, member_id=member_id)
    member.break_off()
    member.drop()
    return True


def test_a_joiner_that_dies_halfway_releases_holders_and_joiners(monkeypatch: pytest.MonkeyPatch) -> None:
    holders, joiners = [wide_state(1) for _ in range(2)], [wide_state(2) for _ in range(3)]

    def die(name: str, member_id: str) -> None:
        if (name, member_id) == ("transfer", "dies"):
            raise CommunicationError("died halfway")

    monkeypatch.setattr(shared_transfer, "fault", die)
    with groups(5) as members:
        hand_overs = [
            HandOver(member, partial(send_share, member, one.snapshot(), JOINERS))
            for member, one in zip(members, holders, strict=False)
        ]
        names = ["", "dies", ""]
        triples = zip(members[2:], joiners, names, strict=True)
        assert all(together(*[partial(fails, member, one, JOINERS, name) for member, one, name in triples]))
        for hand_over in hand_overs:
            hand_over.wait()


def test_a_joiner_that_never_came_releases_those_before_it_and_the_others_when_told() -> None:
    holders, joiners = [wide_state(1) for _ in range(2)], [wide_state(2) for _ in range(3)]
    with groups(5) as members:
        members[3].break_off()
        members[3].drop()
        hand_overs = [
            HandOver(member, partial(send_share, member, one.snapshot(), JOINERS))
            for member, one in zip(members, holders, strict=False)
        ]

        def told() -> bool:
            fails(members[2], joiners[0], JOINERS)
            members[4].break_off()
            return True

        assert all(together(told, partial(fails, members[4], joiners[2], JOINERS)))
        for hand_over in hand_overs:
            hand_over.wait()


def test_parameters_that_change_in_one_holder_are_never_used() -> None:
    holders, joiner = [wide_state(1) for _ in range(2)], wide_state(2)
    before = contents(joiner)
    with groups(3) as members, torch.no_grad():
        snapshots = [one.snapshot() for one in holders]
        next(holders[1].model.parameters()).clamp_(-0.01, 0.01)
        hand_overs = [
            HandOver(member, partial(send_share, member, snapshot, [2]))
            for member, snapshot in zip(members, snapshots, strict=False)
        ]
        with pytest.raises(CommunicationError):
            receive_shares(members[2], joiner, [2], in_place=False)
        for hand_over in hand_overs:
            hand_over.wait()
        assert members[1].broken, "the holder's training thread recovers"
    assert equal(contents(joiner), before)


def test_holders_of_different_states_are_refused() -> None:
    first, other, joiner = state(1), state(1), state(2)
    other.optimizers = {"": torch.optim.SGD(other.model.parameters(), lr=0.1)}
    with groups(3) as members:
        hand_overs = [
            HandOver(member, partial(send_share, member, one.snapshot(), [2]))
            for member, one in zip(members, [first, other], strict=False)
        ]
        with pytest.raises(RuntimeError, match="different parameters or optimizer states, by names, types or shapes"):
            receive_shares(members[2], joiner, [2], in_place=False)
        for hand_over in hand_overs:
            hand_over.wait()


def test_whoever_else_connects_to_a_joiner_is_sent_away() -> None:
    holders, joiners = [state(1)], [state(2), state(2)]
    with groups(3) as members:
        with socket.create_connection(members[2]._listener.getsockname()) as stranger:
            stranger.sendall(bytes(64))
            handed_over(members, holders, joiners, in_place=True, staged=False)
        assert not any(member.broken for member in members)
    assert all(one.position.step == 1 for one in joiners)


def test_breaking_off_releases_a_joiner_to_which_nobody_comes() -> None:
    joiner = state(2)
    with groups(3) as members:
        timer = threading.Timer(0.2, members[2].break_off)
        timer.start()
        with pytest.raises(CommunicationError):
            receive_shares(members[2], joiner, [1, 2], in_place=False)
        timer.join()


def test_a_member_of_a_former_release_gets_a_whole_copy() -> None:
    with groups(3) as members:
        assert all(member.has_routes for member in members)
        former = members[0]._places[2]
        members[0]._places[2] = former._replace(token=former.token.removesuffix("-routes"))
        assert not members[0].has_routes


class Port:
    """One direction of a network card: so many bytes a second."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free_at, self._lock = rate, 0.0, threading.Lock()

    def take(self, count: int) -> float:
        """Return when (monotonic) so many bytes more have passed."""
        with self._lock:
            # Threads wake late: what a card could have sent in the last tenth of a second is not lost.
            self._free_at = max(self._free_at, time.monotonic() - 0.1) + count / self._rate
            return self._free_at


class Throttled:
    """A connection between two cards."""

    def __init__(self, connection: socket.socket, out: Port, into: Port) -> None:
        self._connection, self._ports = connection, (out, into)

    def sendall(self, content: Any) -> None:
        view = memoryview(content)
        for start in range(0, len(view), 2**18):
            passed = max(port.take(len(view[start : start + 2**18])) for port in self._ports)
            time.sleep(max(0.0, passed - time.monotonic()))
            self._connection.sendall(view[start : start + 2**18])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> "Throttled":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@contextmanager
def network(size: int, rate: float) -> Iterator[list[Group]]:
    """A group of that size, each of whose members has a network card."""
    outs, ins = [[Port(rate) for _ in range(size)] for _ in range(2)]
    with groups(size) as members:
        for member in members:
            connect = member.connect

            def throttled(to: int, connect: Callable[[int], Any] = connect, rank: int = member.rank) -> Throttled:
                return Throttled(connect(to), outs[rank], ins[to])

            member.connect = throttled  # type: ignore[assignment, method-assign]
        yield members


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("old", "millions", "rate", "share"),
    [(1, 98, 60e6, 0.5), (2, 25, 30e6, 0.75)],
    ids=["1 -> 4, 100M parameters", "2 -> 5, 25M parameters"],
)
def test_over_a_slow_network_three_joiners_have_the_state_sooner(
    old: int, millions: int, rate: float, share: float
) -> None:
    """12 bytes for each parameter with Adam's state. The network is so slow that a busy machine's processors hardly
    matter: a third, and a half, of the time by copies would be the best."""
    holders = [adam(millions * 10**6) for _ in range(old)]
    joiners = [adam(millions * 10**6, stepped=False) for _ in range(3)]
    new = range(old, old + 3)
    with network(old + 3, rate) as members:
        send = [partial(send_share, member, one.snapshot(), new) for member, one in zip(members, holders, strict=False)]
        pairs = [*zip(members[old:], joiners, strict=True)]
        by_routes = seconds(*send, *[partial(receive_shares, member, one, new, in_place=True) for member, one in pairs])
    expected = holders[0].pack()
    assert all(equal(one.pack(), expected) for one in joiners)
    with network(old + 3, rate) as members:
        pairs = [*zip(members[old:], joiners, strict=True)]
        copies = [partial(send_state, members[rank % old], holders[0].snapshot(), rank) for rank in new]
        by_copies = seconds(*copies, *[partial(receive_state, member, one, in_place=True) for member, one in pairs])
    print(f"{old} -> {old + 3}: {by_copies:.1f} s by copies, {by_routes:.1f} s by routes")

    assert by_routes <= share * by_copies


def adam(parameters: int, *, stepped: bool = True) -> TrainingState:
    model = nn.Linear(parameters // 1000, 1000, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    if stepped:
        with torch.no_grad():
            model.weight.zero_().view(-1)[::4096] = 1.0
        model.weight.grad = model.weight.detach().clone()
        optimizer.step()
        model.weight.grad = None
    return TrainingState(model, {"": optimizer}, {}, Position())


def seconds(*work: Callable[[], None]) -> float:
    begun = time.monotonic()
    together(*work)
    return time.monotonic() - begun
