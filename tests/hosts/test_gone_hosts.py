"""A machine that vanishes closes nothing; the others train on without it, and it harms nobody when it is back."""

from collections.abc import Callable

import pytest

from tests.hosts.job import steady_training, vanish
from tests.hosts.machines import Network
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long]


def test_the_others_train_on_without_a_member_that_is_left_behind_when_it_is_back(
    machines: Callable[[int], Network],
) -> None:
    network = machines(3)
    with steady_training(network) as lab:
        before = set(lab.member_ids())
        vanish(lab, network, "gpu3")
        survivors = set(lab.member_ids())
        [gone] = before - survivors
        assert gone.startswith("gpu3"), "the others are in the same processes"
        network.machines[2].plug()
        wait_until(lambda: gone in lab.exits(), lambda: f"the end of {gone}")
        assert not survivors & set(lab.exits())


def test_the_others_train_on_without_the_lead_once_another_one_leads(machines: Callable[[int], Network]) -> None:
    network = machines(3)
    with steady_training(network) as lab:
        before = set(lab.member_ids())
        vanish(lab, network, "gpu1")
        network.machines[0].crash()
        wait_until(lambda: len(lab.active()["members"]) == 2, lab.story)
        assert set(lab.member_ids()) == {member_id for member_id in before if not member_id.startswith("gpu1")}
        lab.wait_for_steps(5)
