"""Machines between which a firewall lets one range of ports through."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tidepool.network_interfaces import NO_PORT

from tests.hosts.job import lab_over, listening, steady_training
from tests.hosts.machines import Machine, Network
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long]

FIRST, LAST = 20000, 20499
#: Script that holds all ports of the range that nobody has, and says so.
_HOLD = f"""
import contextlib, socket, sys

held = [socket.socket(socket.AF_INET6, socket.SOCK_STREAM) for port in range({FIRST}, {LAST} + 1)]
for port, each in enumerate(held, {FIRST}):
    with contextlib.suppress(OSError):
        each.bind(("", port))
print("held", flush=True)
sys.stdin.read()
"""


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


@contextmanager
def without_a_free_port(machine: Machine) -> Iterator[None]:
    give_ports(machine, FIRST, LAST)
    command = machine.inside(sys.executable, "-c", _HOLD)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


def test_a_host_without_a_free_port_says_so_and_the_training_goes_on_elsewhere(
    machines: Callable[[int], Network],
) -> None:
    network = machines(2)
    full = network.machines[1]
    script = {"arguments": ["--epochs", "100000", "--step-seconds", "0.05"], "effective_batch_size": 12}
    with lab_over(network, "mlp.py", min_slots=1, **script) as lab:
        lab.size(1)
        lab.wait_for_size(1)
        with without_a_free_port(full):
            lab.size(2)
            wait_until(
                lambda: any(NO_PORT in path.read_text() for path in lab.folder.glob("log/gpu2.*/stderr")), lab.story
            )
            lab.wait_for_steps(10)
            assert lab.active()["world_size"] == 1
        lab.wait_for_size(2)
        members = lab.member_ids()
        with without_a_free_port(full):
            lab.start_coordinator("another", host="gpu2")
            wait_until(lambda: NO_PORT in (lab.folder / "log/coordinator.err").read_text(), lab.story)
            lab.wait_for_steps(10)
            assert lab.member_ids() == members, "the former coordinator leads on"
            assert not lab.exits()


def test_a_plain_training_fails_with_the_reason_on_a_host_without_a_free_port(
    machines: Callable[[int], Network],
) -> None:
    network = machines(2)
    with (
        lab_over(network, "gang.py", engine="fixed", arguments=["env"]) as lab,
        without_a_free_port(network.machines[1]),
    ):
        lab.size(2)
        wait_until(lab.exits, lab.story)
        [(member, end)] = lab.exits().items()
        assert member.startswith("gpu2.")
        assert end["error"]["message"].endswith(NO_PORT)


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
