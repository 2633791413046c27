"""A job's runtime over machines of our own: a `Lab` whose hosts each have a forkserver and an address."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidepool import procfs

from tests.hosts.machines import Machine, Network
from tests.runtime.lab import RUNTIME, Lab
from tests.waiting import wait_until

__all__ = ["lab_over", "listening", "place", "steady_training", "vanish"]

#: Prints the ports at which something listens for other machines.
_LISTENING = """
for line in open("/proc/net/tcp").read().splitlines()[1:]:
    address, state = line.split()[1], line.split()[3]
    if state == "0A" and not address.startswith("0100007F"):
        print(int(address.split(":")[1], 16))
"""


@contextmanager
def lab_over(network: Network, script: str, *, slots: int = 1, **options: Any) -> Iterator[Lab]:
    """A job with so many slots on each machine."""
    hosts = {machine.name: (network.shared / f"{machine.name}.sock", machine.address) for machine in network.machines}
    for machine in network.machines:
        _start_forkserver(machine, str(hosts[machine.name][0]))
    wait_until(lambda: all(path.exists() for path, _ in hosts.values()), "the forkservers, which have torch to load")
    sizes = {machine.name: slots for machine in network.machines}
    options = {"min_slots": slots * len(sizes), **options}
    lab = Lab(hosts["gpu1"][0], network.shared / "job", script, sizes=sizes, hosts=hosts, **options)
    for name in ("checkpoint", "model"):
        (lab.folder / name).mkdir()
    try:
        yield lab
    finally:
        lab.stop()


def _start_forkserver(machine: Machine, socket: str) -> None:
    mark = {procfs.MARK_VARIABLE: procfs.reserved_mark()}
    machine.start(
        *(sys.executable, "-P", "-m", "tidepool.forkserver", "--socket", socket),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME), "OMP_NUM_THREADS": "1", **mark},
        stdin=subprocess.DEVNULL,
    )


@contextmanager
def steady_training(network: Network, *, heard_at: float | None = None, **launch: Any) -> Iterator[Lab]:
    """An elastic training with a rank on each machine, led by `gpu1`, that makes steps.

    heard_at: monotonic time at which the lead was last in reach of a control plane.
    """
    script = {"arguments": ["--epochs", "100000", "--step-seconds", "0.05"], "effective_batch_size": 12}
    with lab_over(network, "mlp.py", min_slots=1, **script, **launch) as lab:
        lab.heard_at = heard_at
        lab.size(len(network.machines))
        lab.wait_for_size(len(network.machines))
        lab.wait_for_steps(10)
        yield lab


def vanish(lab: Lab, network: Network, name: str) -> None:
    """Pull a machine's cable, and wait until the others have made a step without it. Another one leads, if need be."""
    [gone] = [machine for machine in network.machines if machine.name == name]
    gone.unplug()
    if name == "gpu1":
        lab.start_coordinator("another", host="gpu2")
    left = len(network.machines) - 1
    wait_until(lambda: any(step["world_size"] == left for step in lab.steps()[-20:]), lab.story)


def listening(machine: Machine) -> list[int]:
    return sorted(map(int, machine.python(_LISTENING).split()))


def place(lab: Lab) -> tuple[str, int]:
    """Where the training's coordinator listens."""
    found = json.loads((lab.folder / "coordinator.json").read_text())
    return found["address"], found["port"]
