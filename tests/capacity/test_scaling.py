"""Tests of the decision about a fleet."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from capacity.fleets import Fleet
from capacity.scaling import Situation, decide, limit_of_fleet
from scheduling.capacity import Leaving, Wanted

FLEET = Fleet("spot", ("rg",), slots=4, command=("hook",), most=5, least=0)
NOW = 10_000.0


def seen(*hosts: str, **fields: Any) -> Situation:
    return Situation(NOW, hosts=hosts, **fields)


def wants(hosts: int, *, limited: bool = False) -> Wanted:
    return Wanted(waiting_hosts=hosts, waiting_slots=4 * hosts, waiting=tuple(range(hosts)), limited=limited)


def leaving(host: str, **fields: Any) -> Leaving:
    return Leaving(host, **({"slots": 4, "stops": 0, "stays": 0, "moved": 0, "loss": 0.0} | fields))


def test_all_wanted_hosts_are_started_at_once() -> None:
    found = decide(FLEET, seen("a", wanted=wants(2)))
    assert (found.action, found.count) == ("start", 2)
    assert found.why == "2 hosts more: 2 waiting trainings would take 8 GPUs now."


def test_hosts_that_come_are_counted() -> None:
    assert decide(FLEET, seen("a", coming=2)).action == "none"
    assert decide(FLEET, seen("a", coming=2, wanted=wants(1))).count == 1


def test_no_more_than_the_most_are_started() -> None:
    assert decide(FLEET, seen("a", "b", "c", wanted=wants(4))).count == 2
    full = decide(replace(FLEET, most=2), seen("a", "b", wanted=wants(0, limited=True)))
    assert (full.action, full.why) == ("none", "More hosts would be of use, but it has 2 hosts at most.")


def test_at_least_the_least_are_there() -> None:
    found = decide(replace(FLEET, least=2), seen("a"))
    assert (found.action, found.count) == ("start", 1)


@pytest.mark.parametrize(
    ("terms", "spent", "most"),
    [
        ({"price": 3.0, "budget_hour": 10.0}, 0.0, 3),
        ({"price": 3.0, "budget_hour": 2.0}, 0.0, 0),
        ({"price": 3.0, "budget_month": 100.0}, 99.0, 5),
        ({"price": 3.0, "budget_month": 100.0}, 100.0, 0),
        ({"price": 3.0, "budget_month": 100.0, "least": 1}, 100.0, 1),
    ],
)
def test_budgets_limit_the_hosts(terms: dict[str, Any], spent: float, most: int) -> None:
    assert limit_of_fleet(replace(FLEET, **terms), spent)[0] == most


def test_a_used_up_budget_stops_hosts_and_says_so() -> None:
    fleet = replace(FLEET, price=3.0, budget_month=100.0, least=1)
    moves = (leaving("b", moved=2, loss=3.9), leaving("a", stays=1))
    found = decide(fleet, seen("a", "b", spent_month=101.0, wanted=wants(0, limited=True), leaving=moves))
    assert (found.action, found.hosts) == ("stop", ("b",))
    assert "its budget for the month is used up (101.00 of 100.00)" in found.why


def test_a_change_is_held_back_after_another() -> None:
    found = decide(FLEET, seen("a", wanted=wants(1), changed_at=NOW - 20))
    assert (found.action, "in 100 s" in found.why) == ("none", True)
    assert decide(FLEET, seen("a", wanted=wants(1), changed_at=NOW - 120)).action == "start"


def test_a_flapping_queue_makes_one_change_in_the_hysteresis() -> None:
    changed_at, changes, surplus = None, [], None
    hosts: tuple[str, ...] = ()
    for second in range(0, 600, 2):
        wanted = wants(1) if second // 10 % 2 else wants(0)
        spare = tuple(leaving(host) for host in hosts)
        situation = Situation(second, hosts, wanted=wanted, changed_at=changed_at, surplus_since=surplus, leaving=spare)
        found = decide(FLEET, situation)
        surplus = found.surplus_since
        if found.action != "none":
            changes.append(second)
            changed_at = float(second)
            hosts = (*hosts, f"h{second}") if found.action == "start" else hosts[:-1]
    assert len(changes) >= 2
    assert all(later - earlier >= FLEET.hold_seconds for earlier, later in pairwise(changes))


def test_a_host_leaves_only_after_it_has_been_of_no_use_for_a_while() -> None:
    spare = (leaving("b"), leaving("a", moved=4, loss=3.0))
    first = decide(FLEET, seen("a", "b", leaving=spare))
    assert (first.action, first.surplus_since) == ("none", NOW)
    assert decide(FLEET, seen("a", "b", leaving=spare, surplus_since=NOW - 299)).action == "none"
    found = decide(FLEET, seen("a", "b", leaving=spare, surplus_since=NOW - 300))
    assert (found.action, found.hosts) == ("stop", ("b",))


def test_a_host_that_pays_stays() -> None:
    busy = (leaving("a", moved=4, loss=1.7),)
    found = decide(FLEET, seen("a", leaving=busy, surplus_since=NOW - 9999))
    assert (found.action, found.surplus_since) == ("none", None)
    idle = (leaving("a", moved=4, loss=1.5),)
    assert decide(FLEET, seen("a", leaving=idle, surplus_since=NOW - 300)).hosts == ("a",)


@pytest.mark.parametrize("effect", [{"stops": 1}, {"stays": 2}])
def test_a_host_without_which_a_training_stops_or_that_one_cannot_leave_stays(effect: dict[str, int]) -> None:
    assert decide(FLEET, seen("a", leaving=(leaving("a", **effect),), surplus_since=0.0)).action == "none"


def test_a_host_that_drains_is_kept_rather_than_another_started() -> None:
    found = decide(FLEET, seen("a", draining=("b",), wanted=wants(1), changed_at=NOW))
    assert (found.action, found.hosts) == ("resume", ("b",))


def test_more_hosts_than_the_most_leave_at_once() -> None:
    spare = tuple(leaving(name) for name in "abcdefg")
    found = decide(FLEET, seen(*"abcdefg", leaving=spare))
    assert (found.action, found.hosts) == ("stop", ("a", "b"))


def test_a_command_that_failed_is_not_called_at_once_again() -> None:
    found = decide(FLEET, seen(wanted=wants(1), retry_at=NOW + 60, failure="The hook hangs."))
    assert found.action == "none"
    assert found.why.endswith("Its command is tried again in 60 s. The hook hangs.")


def test_nothing_is_decided_while_the_command_runs() -> None:
    assert decide(FLEET, seen(is_calling=True, wanted=wants(3))).action == "none"
