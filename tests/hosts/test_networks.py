"""Machines with a network of their own: who finds whom by which interface."""

import json
from collections.abc import Callable

import pytest

from tests.hosts.job import lab_over, steady_training
from tests.hosts.machines import Network
from tests.waiting import wait_until

# Chromium drops its requests when an interface comes or goes: not beside the browser tests.
pytestmark = [pytest.mark.root, pytest.mark.long]


def test_plain_ddp_starts_over_two_hosts_whose_names_lead_to_the_loopback(machines: Callable[[int], Network]) -> None:
    with lab_over(machines(2), "gang.py", engine="fixed", arguments=["env"]) as lab:
        lab.size(2)
        wait_until(lambda: len(lab.exits()) == 2, lab.story, 60)
        assert [path.read_text() for path in lab.folder.glob("log/*/total")] == ["1.0", "1.0"], lab.story()
        seen = [json.loads(path.read_text()) for path in sorted(lab.folder.glob("log/*/environment.json"))]
        assert {values["MASTER_ADDR"] for values in seen} == {lab.hosts["gpu1"][1]}
        assert all(values["NCCL_SOCKET_IFNAME"] == f"={values['GLOO_SOCKET_IFNAME']}" for values in seen)


def test_plain_ddp_trains_where_there_is_no_ipv4(machines: Callable[..., Network]) -> None:
    with lab_over(machines(2, ipv6=True), "gang.py", engine="fixed", arguments=["env"]) as lab:
        lab.size(2)
        wait_until(lambda: len(lab.exits()) == 2, lab.story, 60)
        assert [path.read_text() for path in lab.folder.glob("log/*/total")] == ["1.0", "1.0"], lab.story()


def test_an_elastic_training_is_resized_where_there_is_no_ipv4(machines: Callable[..., Network]) -> None:
    with steady_training(machines(2, ipv6=True)) as lab:
        lab.size(1)
        lab.wait_for_size(1)
        lab.size(2)
        lab.wait_for_size(2)
        lab.wait_for_steps(5)
        assert not lab.journal("lost"), lab.story()
