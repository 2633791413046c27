"""Steps of one job's reconciler, whose environment a test prepares."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import msgspec
import pytest
from tidepool import procfs
from tidepool.journal import Journal
from tidepool.protocol import RankStarted, RankStatus, ShimStatus, encode

from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import desired_job
from workers.executor import job_reconciler
from workers.executor.config import ExecutorConfig
from workers.executor.dead_shims import left_behind, ranks_without_end
from workers.executor.environments.cache import Environments
from workers.executor.forkserver import Forkservers
from workers.executor.job_reconciler import JobReconciler
from workers.executor.limits import JobLimits
from workers.executor.links import Link
from workers.executor.seals import Seals

#: Listens where a guardian would, and says nothing.
LISTENS = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".new")
listener.listen(4)
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def reconciler_of(folder: Path, **changes: Any) -> tuple[Any, JobReconciler]:
    environments = create_autospec(Environments, instance=True)
    environments.ask.return_value = None
    config = ExecutorConfig(folder, "host-a", "", 1, "127.0.0.1", None)
    job = desired_job(launch_spec(folder, "", requirements="timm"), [0], lead=True, **changes)
    limits = JobLimits(config.slot_limits, config.mark)
    parts = create_autospec(Forkservers, instance=True), environments, job, limits, Seals(config, limits)
    return environments, JobReconciler(config, *parts)


def _has_own_mounts(pid: int) -> bool:
    return os.stat(f"/proc/{pid}/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_no_entry_that_a_script_has_written_ends_a_process_of_tidepool(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    """A training that ends its guardian has the executor end what the journal names."""
    forged = RankStarted("host-a.0.1", 0, bystander.pid, procfs.started_at(bystander.pid), at=1.0)
    with closing(Journal(tmp_path / "attempt-1" / "journal" / "shim.host-a.jsonl")) as journal:
        journal.append(forged)
    _, reconciler = reconciler_of(tmp_path)
    reconciler.reconcile(may_start=False)
    assert bystander.poll() is None


def test_no_entry_ends_a_process_of_another_training_or_of_the_machine(tmp_path: Path) -> None:
    """A service may have mounts of its own, and another training's process may have lost its mark."""
    if os.getuid() != 0:
        pytest.skip("only root has mounts of its own without a wall")
    words = ["/usr/bin/unshare", "--mount", "/bin/sleep", "600"]
    with subprocess.Popen(words, start_new_session=True) as service:
        try:
            wait_until(lambda: _has_own_mounts(service.pid), "mounts of its own")
            forged = RankStarted("host-a.0.1", 0, service.pid, procfs.started_at(service.pid), at=1.0)
            assert left_behind("mark.1.1", [forged], user=os.getuid()) == []
            assert [each.pid for each in left_behind("mark.1.1", [forged], user=None)] == [service.pid]
        finally:
            service.kill()


def test_a_journal_of_very_many_starts_does_not_keep_the_host_waiting(tmp_path: Path) -> None:
    start = {"slot": 0, "started_at": 1.0, "at": 1.0}
    journal = tmp_path / "shim.host-a.jsonl"
    with journal.open("w") as file:
        for number in range(30_000):
            data = {**start, "member_id": f"host-a.0.{number}", "pid": 2**31 - 1 - number}
            file.write(json.dumps({"number": 1, "kind": "rank_started", "data": data}) + "\n")
    begun = time.process_time()
    ranks = ranks_without_end(journal)
    assert left_behind("mark.1.1", ranks, user=os.getuid()) == []
    assert len(ranks) <= 1024
    assert time.process_time() - begun < 10.0


def test_a_guardian_that_says_nothing_does_not_keep_the_host_from_reporting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training can stop its own guardian: the next executor of the host has heard nothing of it yet."""
    monkeypatch.setattr(job_reconciler, "_SILENCE_SECONDS", 0.0)
    _, reconciler = reconciler_of(tmp_path)
    place = reconciler._shim_socket
    place.parent.mkdir(parents=True, exist_ok=True)
    mark = {procfs.MARK_VARIABLE: f"{reconciler._mark}.shim"}
    with subprocess.Popen([sys.executable, "-c", LISTENS, str(place)], env=mark) as guardian:
        wait_until(place.exists, "its socket")
        reconciler.reconcile(may_start=False)
        assert reconciler.observed
        assert guardian.wait(20.0) == -signal.SIGKILL
        reconciler.detach()


def test_a_status_about_another_training_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    link = Link(ours, (7, 1))
    with theirs:
        rank = RankStatus(7, 1, 0, "host-a.0.1", 1, 1.0, "RUNNING")
        right = ShimStatus(7, 1, 1, 1.0, 3, False, [rank])
        for forged in (
            msgspec.structs.replace(right, job=8),
            msgspec.structs.replace(right, attempt=2),
            msgspec.structs.replace(right, ranks=[rank, msgspec.structs.replace(rank, job=8)]),
        ):
            theirs.sendall(encode(forged))
            link.receive()
            assert link.status is None
        theirs.sendall(encode(right))
        link.receive()
        assert link.status == right
    link.close()


@pytest.mark.parametrize(("least", "calls"), [("", 2), ("shared", 2), ("walled", 2), ("separate", 0), ("sealed", 0)])
def test_nothing_starts_at_a_lower_level_than_its_group_demands(tmp_path: Path, least: str, calls: int) -> None:
    """The site may not know yet that this host has come back with a lower one."""
    environments, reconciler = reconciler_of(tmp_path, least_isolation=least)
    assert reconciler._config.isolation == "walled"
    reconciler.reconcile(may_start=True)
    assert environments.ask.call_count == calls


def test_what_waits_for_its_environment_is_tried_in_each_cycle(tmp_path: Path) -> None:
    environments, reconciler = reconciler_of(tmp_path)
    for _ in range(3):
        reconciler.reconcile(may_start=True)
    assert environments.ask.call_count == 3 * 2, "for the shim, and for the coordinator"
