"""Hosts that are cut off while the shared folder stays in reach: one half trains on, the other one holds still."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.hosts.job import steady_training
from tests.hosts.machines import Network
from tests.runtime.lab import Lab
from tests.waiting import wait_until

pytestmark = pytest.mark.root


@contextmanager
def training_cut(network: Network, *names: str) -> Iterator[Lab]:
    """A training on all machines, of which these are cut off with their control plane silent."""
    with steady_training(network, heard_at=time.monotonic()) as lab:
        network.cut_off(*names)
        yield lab


def another_leads(lab: Lab, host: str) -> None:
    lab.start_coordinator("another", host=host)


def wait_for_step_of(lab: Lab, size: int) -> None:
    wait_until(lambda: lab.steps()[-1]["world_size"] == size, lab.story)


def assert_one_history(lab: Lab) -> None:
    """No step and no number of a generation was used twice, and no step is missing."""
    steps = [record["step"] for record in lab.steps()]
    assert steps == list(range(1, len(steps) + 1))
    numbers = [entry["generation"] for entry in lab.journal("generation_planned")]
    assert sorted(set(numbers)) == sorted(numbers)


def is_fenced(lab: Lab) -> bool:
    return "fenced: lead 1 is superseded by lead 2" in (lab.folder / "log" / "coordinator.err").read_text()


def hosts_of(members: list[str]) -> set[str]:
    return {member_id.partition(".")[0] for member_id in members}


def test_a_lead_that_is_cut_off_holds_still_and_the_majority_trains_on(machines: Callable[[int], Network]) -> None:
    with training_cut(machines(3), "gpu1") as lab:
        before = set(lab.member_ids())
        wait_until(lambda: lab.journal("held_still"), lab.story)
        assert [entry["gone"] for entry in lab.journal("held_still")] == [["gpu2", "gpu3"]]
        another_leads(lab, "gpu2")
        wait_for_step_of(lab, 2)
        lab.wait_for_steps(10)
        wait_until(lambda: is_fenced(lab), lab.story)
        assert set(lab.member_ids()) == {member_id for member_id in before if not member_id.startswith("gpu1")}
        assert_one_history(lab)


def test_hosts_that_are_back_before_another_one_leads_train_on_without_a_lost_step(
    machines: Callable[[int], Network],
) -> None:
    network = machines(3)
    with training_cut(network, "gpu1") as lab:
        before = lab.member_ids()
        wait_until(lambda: lab.journal("held_still"), lab.story)
        network.heal()
        wait_for_step_of(lab, 3)
        assert lab.member_ids() == before, "the same processes go on"
        assert_one_history(lab)


def test_a_lead_that_comes_back_after_another_has_led_joins_it(machines: Callable[[int], Network]) -> None:
    network = machines(3)
    with training_cut(network, "gpu1") as lab:
        another_leads(lab, "gpu2")
        wait_for_step_of(lab, 2)
        network.heal()
        lab.wait_for_size(3)
        wait_for_step_of(lab, 3)
        assert_one_history(lab)


@pytest.mark.long
def test_two_of_five_hosts_hold_still_with_the_lead_among_them(machines: Callable[[int], Network]) -> None:
    network = machines(5)
    with training_cut(network, "gpu1", "gpu2") as lab:
        wait_until(lambda: lab.journal("held_still"), lab.story)
        another_leads(lab, "gpu3")
        wait_for_step_of(lab, 3)
        wait_until(lambda: is_fenced(lab), lab.story)
        assert hosts_of(lab.member_ids()) == {"gpu3", "gpu4", "gpu5"}
        network.heal()
        lab.wait_for_size(5)
        assert_one_history(lab)


@pytest.mark.long
def test_three_of_five_hosts_go_on_with_the_lead_among_them(machines: Callable[[int], Network]) -> None:
    network = machines(5)
    with training_cut(network, "gpu4", "gpu5") as lab:
        wait_for_step_of(lab, 3)
        assert hosts_of(lab.member_ids()) == {"gpu1", "gpu2", "gpu3"}
        assert not lab.journal("held_still")
        network.heal()
        lab.wait_for_size(5)
        assert_one_history(lab)


@pytest.mark.long
def test_the_lead_of_two_hosts_goes_on_alone_until_the_other_one_leads(machines: Callable[[int], Network]) -> None:
    with training_cut(machines(2), "gpu1") as lab:
        wait_for_step_of(lab, 1)
        another_leads(lab, "gpu2")
        wait_until(lambda: is_fenced(lab), lab.story)
        wait_until(lambda: lab.journal("lost"), lab.story)
        made = len(lab.steps())
        assert_one_history(lab)
        time.sleep(3.0)
        assert len(lab.steps()) == made, "a rank of the fenced half still writes"


@pytest.mark.long
def test_a_training_that_nobody_else_leads_ends_after_three_leases(machines: Callable[[int], Network]) -> None:
    network = machines(3)
    with steady_training(network, heard_at=time.monotonic(), lease_seconds=4.0) as lab:
        network.cut_off("gpu1")
        wait_until(lambda: lab.journal("held_still"), lab.story)
        wait_until(lambda: lab.journal("lost"), lab.story)
        [held], [lost] = lab.journal("held_still"), lab.journal("lost")
        assert 12.0 <= lost["at"] - held["at"] < 20.0
        assert_one_history(lab)
