"""The lead host's executor starts the job's coordinator, tells it the target, and starts it again when it dies."""

import json
from pathlib import Path
from typing import Any

import msgspec
import psutil
from tidepool import procfs
from tidepool.fence import newest, take
from tidepool.journal import Journal
from tidepool.protocol import Finished, LaunchSpec

from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import Host, desired_job

TRAIN_FOREVER = "import time\nwhile True:\n    time.sleep(0.05)\n"


def coordinators(host: Host) -> list[psutil.Process]:
    return procfs.marked(f"{host.config.mark}.3.1.coordinator")


def place(launch: LaunchSpec) -> dict[str, Any] | None:
    """Return the address that the coordinator announces."""
    path = Path(launch.folder) / "coordinator.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_lead_host_has_one_coordinator_and_ends_it_with_the_job(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    host.send_desired(desired_job(launch, [0], lead=True))
    host.until_running(1)
    found = wait_until(lambda: place(launch))
    [coordinator] = coordinators(host)
    assert found["pid"] == coordinator.pid
    host.send_desired(desired_job(launch, [0], lead=True, stop=True))
    wait_until(lambda: not host.processes())


def test_a_host_that_does_not_lead_has_none(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0], lead=False))
    host.until_running(1)
    assert coordinators(host) == []


def test_coordinator_killed_is_started_again_and_no_rank_ends(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    host.send_desired(desired_job(launch, [0], lead=True))
    before = host.until_running(1).ranks
    wait_until(lambda: place(launch))
    [first] = coordinators(host)
    procfs.kill(first)
    second = wait_until(lambda: [each for each in coordinators(host) if each.pid != first.pid])
    wait_until(lambda: (place(launch) or {}).get("pid") == second[0].pid)
    assert host.until_running(1).ranks == before


def test_coordinator_outlives_executor_and_is_found_again(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    host.send_desired(desired_job(launch, [0], lead=True))
    host.until_running(1)
    wait_until(lambda: place(launch))
    before = coordinators(host)
    host.kill()
    host.start()
    host.until(lambda report: len(host.boots) == 2)
    assert [each.pid for each in coordinators(host)] == [each.pid for each in before]


def test_coordinator_of_a_finished_training_is_not_started_again(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    journal = Journal(Path(launch.folder) / "plans.jsonl")
    journal.append(Finished(step=1, epoch=1, at=0.0))
    journal.close()
    host.send_desired(desired_job(launch, [0], lead=True))
    host.until_running(1)
    host.until_applied()
    assert coordinators(host) == []


def test_coordinator_ends_where_the_lead_moves_away(host: Host, tmp_path: Path) -> None:
    desired = desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0], lead=True)
    host.send_desired(desired)
    before = host.until_running(1).ranks
    wait_until(lambda: coordinators(host))
    host.send_desired(msgspec.structs.replace(desired, target_revision=2, lead=False))
    wait_until(lambda: not coordinators(host))
    assert host.until_running(1).ranks == before


def test_no_coordinator_is_started_under_a_lead_that_is_superseded(host: Host, tmp_path: Path) -> None:
    desired = desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0], lead=True)
    take(Path(desired.launch.folder), 2)
    host.send_desired(msgspec.structs.replace(desired, lead_number=1))
    host.until_applied()
    assert coordinators(host) == []
    host.send_desired(msgspec.structs.replace(desired, lead_number=3, target_revision=2))
    wait_until(lambda: newest(Path(desired.launch.folder)) == 3)
    assert coordinators(host)


def test_coordinator_ends_once_another_leads(host: Host, tmp_path: Path) -> None:
    desired = desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0], lead=True)
    host.send_desired(msgspec.structs.replace(desired, lead_number=1))
    host.until_running(1)
    wait_until(lambda: coordinators(host))
    take(Path(desired.launch.folder), 2)
    wait_until(lambda: not coordinators(host))
    log = Path(desired.launch.folder) / "log" / "coordinator.err"
    assert "fenced: lead 1 is superseded by lead 2" in log.read_text()
