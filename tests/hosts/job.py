"""A job's runtime over machines of our own: a `Lab` whose hosts each have a forkserver and an address."""

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

__all__ = ["lab_over"]


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
        *(sys.executable, "-P", "-m", "tidepool.torch.forkserver", "--socket", socket),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME), "OMP_NUM_THREADS": "1", **mark},
        stdin=subprocess.DEVNULL,
    )
