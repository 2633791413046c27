"""A training holds still where most hosts are out of reach, and the control plane with them."""

from typing import Any

import pytest
from tidepool.protocol import HeldStill, Join, Lost, Member, MemberMessage, ShimJoin
from tidepool.torch.coordination.membership import Membership
from tidepool.torch.coordination.minority import HEARD_SECONDS, RETURN_SECONDS, Minority
from tidepool.torch.coordination.roster import Action, Send

LEASE = 30.0


class Training:
    """A membership with a rank on each of so many hosts, all of which train in generation 1."""

    def __init__(self, hosts: int, heard_at: float | None = 0.0) -> None:
        self.membership = Membership("127.0.0.1", 1, hosts, minority=Minority(LEASE, heard_at))
        self.now = 100.0
        self.hosts = [f"gpu{number}" for number in range(1, hosts + 1)]
        self.membership.retarget([Member(host, 0) for host in self.hosts], 1, self.now)
        for host in self.hosts:
            self.join(host)
            self.send(host, "ready")
        for kind in ("prepared", "switched"):
            for host in self.hosts:
                self.send(host, kind, generation=1, step=1)
        assert self.membership.active is not None
        assert len(self.membership.active.members) == hosts

    def join(self, host: str, generation: int = 0) -> list[Action]:
        return self.membership.joined(Join(1, 1, f"{host}.0.1", host, 0, 1, generation, True), self.now)

    def send(self, host: str, kind: Any, **values: Any) -> list[Action]:
        return self.membership.received(f"{host}.0.1", MemberMessage(kind, **values), self.now)

    def lose(self, *hosts: str) -> list[Action]:
        return [action for host in hosts for action in self.membership.disconnected(f"{host}.0.1", self.now)]

    def pass_time(self, seconds: float) -> list[Action]:
        actions: list[Action] = []
        for _ in range(round(seconds)):
            self.now += 1.0
            for member_id in list(self.membership.ranks):
                self.membership.received(member_id, MemberMessage("alive", 1, 1, waits_seconds=None), self.now)
            actions += self.membership.ticked(self.now)
        return actions

    @property
    def members(self) -> list[str]:
        pending = self.membership.pending
        return [member.host for member in pending.plan.members] if pending else []


@pytest.mark.parametrize(
    ("hosts", "gone", "holds"),
    [
        (1, 0, False),
        (2, 1, False),
        (3, 1, False),
        (3, 2, True),
        (4, 2, False),
        (4, 3, True),
        (5, 2, False),
        (5, 3, True),
    ],
)
def test_more_than_half_of_the_hosts_have_to_be_gone(hosts: int, gone: int, holds: bool) -> None:
    training = Training(hosts)
    actions = training.lose(*training.hosts[hosts - gone :])
    assert (training.membership.minority.since is not None) == holds
    assert [type(action) for action in actions if isinstance(action, HeldStill)] == [HeldStill] * holds


@pytest.mark.parametrize(("silence", "holds"), [(HEARD_SECONDS - 1, False), (HEARD_SECONDS + 1, True)])
def test_a_lead_in_reach_of_the_control_plane_goes_on(silence: float, holds: bool) -> None:
    training = Training(3, heard_at=100.0 - silence)
    training.lose("gpu2", "gpu3")
    assert (training.membership.minority.since is not None) == holds
    assert (training.members == ["gpu1"]) != holds


def test_without_an_executor_that_tells_nothing_is_held() -> None:
    training = Training(3, heard_at=None)
    training.lose("gpu2", "gpu3")
    assert training.members == ["gpu1"]


def test_ranks_that_ended_on_hosts_in_reach_are_no_cut() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    assert training.membership.minority.since is not None
    for host in ("gpu2", "gpu3"):
        training.membership.shim_joined(ShimJoin(1, 1, host, []), training.now)
    assert training.members == ["gpu1"]


def test_ranks_that_ask_are_told_that_no_plan_comes() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    [answer] = training.send("gpu1", "broken", generation=1)
    assert isinstance(answer, Send)
    assert answer.message.kind == "hold"
    assert training.pass_time(2 * LEASE) == []
    assert training.membership.active is not None
    assert training.membership.generation == 2, "the plan for two hosts, before the third one was gone, is the last"


def test_it_goes_on_at_once_when_the_control_plane_is_back() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    training.pass_time(10)
    training.membership.minority.heard_at = training.now
    training.pass_time(1)
    assert training.members == ["gpu1"]


def test_it_goes_on_with_all_hosts_when_they_are_back() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    training.pass_time(10)
    training.join("gpu2", generation=1)
    assert training.membership.minority.since is not None, "the third host may be back in a moment"
    training.join("gpu3", generation=1)
    assert training.members == ["gpu1", "gpu2", "gpu3"]


def test_it_waits_for_ranks_whose_shims_are_back_before_them() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    for host in ("gpu2", "gpu3"):
        training.membership.shim_joined(ShimJoin(1, 1, host, [f"{host}.0.1"]), training.now)
    assert training.membership.minority.since is not None
    for host in ("gpu2", "gpu3"):
        training.join(host, generation=1)
    assert training.members == ["gpu1", "gpu2", "gpu3"]


def test_it_goes_on_without_a_host_that_stays_away() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    training.join("gpu2", generation=1)
    training.pass_time(RETURN_SECONDS + 1)
    assert training.members == ["gpu1", "gpu2"]


def test_it_ends_after_three_leases() -> None:
    training = Training(3)
    training.lose("gpu2", "gpu3")
    assert training.pass_time(3 * LEASE) == []
    actions = training.pass_time(2)
    assert [action for action in actions if isinstance(action, Lost)]
    assert training.membership.lost
