"""An executor in a PID namespace of its own, as in a container: what it finds of its trainings, and what it cannot."""

import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.hosts.machines import Machine, Network
from tests.hosts.site import running_site
from tests.journey.training import Training
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long]

#: A rank that leaves a process in a session of its own, whose parent is not the rank.
_SCRIPT = """
import subprocess, time

subprocess.run("setsid sleep 864000 &", shell=True, check=True)
while True:
    time.sleep(1)
"""
_DAEMON = "sleep 864000"


def only(machine: Machine, title: str) -> psutil.Process:
    """Return the machine's process with this title, once it is there."""
    [process] = wait_until(lambda: machine.processes(title), title)
    return process


def test_a_container_ends_what_a_killed_shim_leaves_and_another_one_waits_for_it(
    machines: Callable[[int], Network], tmp_path: Path
) -> None:
    if shutil.which("redis-server") is None:
        leave_out("redis-server is missing: sudo apt-get install redis-server")
    network = machines(2)
    former, latter = network.machines
    (tmp_path / "train.py").write_text(_SCRIPT)
    run = {"TIDEPOOL_RUN": str(network.shared / "run")}
    with running_site(network, {"TIDEPOOL_LEASE_SECONDS": "8"}) as site, site.api() as api:
        token = site.join_token(1)
        site.join(former, token, **run)
        site.wait_for_hosts("gpu1")
        site.register_plain(tmp_path, "leaver")
        training = Training(api, site.home, "leaver", model="leaver", max_slots=1)
        daemon, shim = only(former, _DAEMON), only(former, "tidepool shim")
        shim.kill()
        wait_until(lambda: not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE, site.story)

        wait_until(lambda: training.now["attempt"] == 2 and former.processes(_DAEMON), site.story)
        only(former, "tidepool executor").kill()
        left = only(former, _DAEMON)
        site.join(latter, token, name="gpu1", **run)
        log = site.home / f"{latter.name}.log"
        wait_until(lambda: "run in another PID namespace" in log.read_text(), site.story)
        wait_until(lambda: site.hosts()["gpu1"]["state"] == "LOST", site.story)
        assert left.is_running()
        former.crash()
        site.wait_for_hosts("gpu1")
        assert site.hosts()["gpu1"]["address"] == latter.address
        wait_until(lambda: latter.processes(_DAEMON), site.story)
        assert training.now["attempt"] == 3
