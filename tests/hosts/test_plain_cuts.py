"""Plain DDP over several hosts, while the site or a host is cut off: what happens is what the operator's page says."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.machines import Machine, Network
from tests.hosts.site import Site, running_site
from tests.journey.training import Training
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long]

_LEASE_SECONDS = 6
#: Rank 0 saves after every fifth sum, from which the script can continue at any time, and writes each number down.
_SCRIPT = """
import os, time
from pathlib import Path
import torch
import torch.distributed as dist

kept, log = Path(os.environ["CHECKPOINT_DIR"], "count"), Path(os.environ["LOG_DIR"], "counted").open("a", buffering=1)
kept.with_name("resumable").touch()
count = int(kept.read_text()) if kept.exists() else 0
dist.init_process_group("gloo")
while True:
    enough = torch.tensor(float(Path(os.environ["CHECKPOINT_DIR"], "enough").exists()))
    dist.all_reduce(enough)
    if enough:
        break
    count += 1
    log.write(f"{count}\\n")
    if dist.get_rank() == 0 and count % 5 == 0:
        kept.with_suffix(".new").write_text(str(count))
        os.replace(kept.with_suffix(".new"), kept)
    time.sleep(0.1)
"""


@contextmanager
def counting(network: Network, folder: Path, slots: int) -> Iterator[tuple[Site, Training]]:
    """A site that all machines have joined, and a plain script of so many ranks that counts."""
    if shutil.which("redis-server") is None:
        leave_out("redis-server is missing: sudo apt-get install redis-server")
    (folder / "train.py").write_text(_SCRIPT)
    names = [machine.name for machine in network.machines]
    with running_site(network, {"TIDEPOOL_LEASE_SECONDS": str(_LEASE_SECONDS)}) as site, site.api() as api:
        token = site.join_token(len(names))
        for machine in network.machines:
            site.join(machine, token)
        site.wait_for_hosts(*names)
        site.register_plain(folder, "counter")
        training = Training(api, site.home, "counter", model="counter", min_slots=slots, max_slots=slots)
        wait_until(lambda: training.now["state"] == "RUNNING" and len(counted(training, 1)) > 10, site.story)
        yield site, training


def counted(training: Training, attempt: int) -> list[int]:
    """Return the numbers that the attempt's rank 0 has reached, in the order in which it did."""
    logs = [path.read_text() for path in training.folder.glob(f"attempt-{attempt}/log/*/counted")]
    return [int(line) for line in max(logs, key=len, default="").split("\n")[:-1]]


def stands_still(training: Training, seconds: float) -> bool:
    """Return whether rank 0 of the present attempt has not counted for so long."""
    newest = max(path.stat().st_mtime for path in training.folder.glob("current/log/*/counted"))
    return time.time() - newest > seconds


def end(training: Training) -> None:
    (training.folder / "current/checkpoint/enough").touch()
    training.wait_for_the_end()


def events(training: Training) -> list[str]:
    answer = training.api.get(f"jobs/{training.id}/events/").raise_for_status().json()
    return [event["reason"]["text"] for event in reversed(answer["results"])]


def is_without_trainings(machine: Machine) -> bool:
    return not machine.processes("tidepool rank")


def hosts_of(training: Training) -> list[str]:
    """Return the hosts of the attempt's ranks, that of rank 0 first, once all of them have told their numbers."""

    def numbered() -> list[dict[str, Any]]:
        ranks = training.api.get(f"jobs/{training.id}/ranks/").raise_for_status().json()["results"]
        here = [rank for rank in ranks if rank["attempt"] == training.now["attempt"]]
        return here if all(rank["rank"] is not None for rank in here) else []

    ranks = wait_until(numbered, "the numbers of the ranks")
    return [rank["host"] for rank in sorted(ranks, key=lambda rank: rank["rank"])]


def test_a_plain_training_goes_on_while_the_whole_site_is_out_of_reach(
    machines: Callable[[int], Network], tmp_path: Path
) -> None:
    network = machines(2)
    with counting(network, tmp_path, 2) as (site, training):
        before = events(training)
        network.cut_off("gpu1", "gpu2")
        wait_until(lambda: {host["state"] for host in site.hosts().values()} == {"LOST"}, site.story)
        made = len(counted(training, 1))
        wait_until(lambda: len(counted(training, 1)) > made + 10 * 3 * _LEASE_SECONDS, site.story)
        assert training.now["state"] == "RUNNING"
        network.heal()
        site.wait_for_hosts("gpu1", "gpu2")
        assert events(training) == before
        end(training)
        assert training.now["attempt"] == 1
        numbers = counted(training, 1)
        assert numbers == [*range(1, len(numbers) + 1)]


def test_a_plain_training_starts_again_from_its_file_without_a_host_that_is_cut_off(
    machines: Callable[[int], Network], tmp_path: Path
) -> None:
    network = machines(3)
    with counting(network, tmp_path, 2) as (site, training):
        _, second = hosts_of(training)
        network.cut_off(second)
        wait_until(lambda: stands_still(training, _LEASE_SECONDS / 2), site.story)
        network.heal()
        made = len(counted(training, 1))
        wait_until(lambda: len(counted(training, 1)) > made + 10, site.story)
        assert training.now["attempt"] == 1, "a short cut ends nothing"

        [gone] = [machine for machine in network.machines if machine.name == second]
        network.cut_off(second)
        wait_until(lambda: counted(training, 2), site.story)
        assert second not in hosts_of(training)
        [told] = [text for text in events(training) if text.startswith(f"The host {second} no longer reports")]
        assert told.endswith("all ranks are stopped; its script continues from its CHECKPOINT_DIR, if it reads it.")
        last, begun = counted(training, 1)[-1], counted(training, 2)[0]
        assert last - 5 < begun <= last + 1, "more than what came after the newest save is lost"
        network.heal()
        site.wait_for_hosts("gpu1", "gpu2", "gpu3")
        wait_until(lambda: is_without_trainings(gone), site.story)
        end(training)
        assert training.now["attempt"] == 2
