"""A stranger on the hosts' network, who is none of them: whatever it says to a training, the training goes on."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.hosts.job import lab_over, listening, place, steady_training
from tests.hosts.machines import Network
from tests.runtime.lab import Lab
from tests.runtime.strangers import FORGED, forge
from tests.waiting import wait_until

pytestmark = pytest.mark.root

SILENT = 10_000


def answers(found: dict[str, dict[int, str]]) -> Collection[str]:
    return {what for ports in found.values() for what in ports.values()}


def assert_unharmed(lab: Lab, members: list[str]) -> None:
    """The same ranks go on in the same generation, led by the same coordinator, and can still be resized."""
    lab.wait_for_steps(5)
    assert lab.member_ids() == members
    assert not set(members) & set(lab.exits())
    assert Path(f"/proc/{lab.coordinator['pid']}").exists()
    lab.size(len(members) - 1)
    lab.wait_for_size(len(members) - 1)
    lab.size(len(members))
    lab.wait_for_size(len(members))
    assert not lab.journal("lost")


def test_nothing_that_is_forged_is_taken_at_any_port_of_a_training(machines: Callable[[int], Network]) -> None:
    network = machines(2)
    with steady_training(network) as lab:
        members = lab.member_ids()
        for machine in network.machines:
            ports = listening(machine)
            assert len(ports) >= 2, "a rank listens for state and by gloo"
            found = forge(machine.address, ports)
            assert len(found) > len(FORGED)
            assert "answered" not in answers(found), found
            gloo = [port for port in ports if {what[port] for what in found.values()} == {"kept out"}]
            assert len(gloo) == 1, f"a formed group takes no caller where its gloo listens: {found}"
        assert_unharmed(lab, members)


def test_ten_thousand_silent_connections_from_another_machine_stop_nothing(
    machines: Callable[[int], Network],
) -> None:
    network = machines(3)
    stranger = network.machines[2]
    with steady_training(network) as lab:
        lab.size(2)
        lab.wait_for_size(2)
        members = lab.member_ids()
        address, port = place(lab)
        words = ("-m", "tests.runtime.strangers", "crowd", address, str(port), str(SILENT))
        program = stranger.inside("env", "PYTHONPATH=.:runtime", sys.executable, *words)
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == f"{SILENT} connections\n"
            assert_unharmed(lab, members)
            crowd.kill()


def test_the_store_of_a_plain_script_on_one_host_takes_nobody_from_another(machines: Callable[[int], Network]) -> None:
    network = machines(2)
    with lab_over(network, "gang.py", slots=2, engine="fixed", min_slots=2, arguments=["stay"]) as lab:
        lab.target(("gpu1", 0), ("gpu1", 1))
        wait_until(lambda: len(list(lab.folder.glob("log/*/total"))) == 2, lab.story)
        [environment, _] = lab.folder.glob("log/*/environment.json")
        port = int(json.loads(environment.read_text())["MASTER_PORT"])
        address = network.machines[0].address
        wait_until(lambda: is_kept_out(address, port), "a stranger that is kept out")
        (lab.folder.parent / "go").touch()
        wait_until(lambda: len(lab.exits()) == 2, lab.story)
        assert not any(end["code"] for end in lab.exits().values())


def is_kept_out(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 1.0):
            return False
    except TimeoutError:
        return True
