"""Machines between which a firewall lets one range of ports through."""

import shutil
from collections.abc import Callable

import pytest

from tests.hosts.job import listening, steady_training
from tests.hosts.machines import Machine, Network
from tests.missing import leave_out

pytestmark = [pytest.mark.root, pytest.mark.long]

FIRST, LAST = 20000, 20499


def give_ports(machine: Machine, first: int, last: int) -> None:
    machine.run("sh", "-c", f"echo {first} {last} > /proc/sys/net/ipv4/ip_local_port_range")


def behind_firewall(machine: Machine) -> None:
    """Let nothing in from other machines but to ports of the range, replies included."""
    if shutil.which("iptables") is None:
        leave_out("iptables is missing: sudo apt-get install iptables")
    give_ports(machine, FIRST, LAST)
    machine.run("iptables", "-A", "INPUT", "-i", "lo", "-j", "ACCEPT")
    machine.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", f"{FIRST}:{LAST}", "-j", "ACCEPT")
    machine.run("iptables", "-P", "INPUT", "DROP")


def test_an_elastic_training_needs_no_other_port_than_those_of_the_range(machines: Callable[[int], Network]) -> None:
    network = machines(2)
    for machine in network.machines:
        behind_firewall(machine)
    with steady_training(network) as lab:
        for size in (1, 2):
            lab.size(size)
            lab.wait_for_size(size)
        ports = [port for machine in network.machines for port in listening(machine)]
        assert len(ports) >= 5, "the coordinator, and state and gloo of two ranks"
        assert all(FIRST <= port <= LAST for port in ports), ports
        assert not lab.journal("lost"), lab.story()
