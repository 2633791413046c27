"""Executors as real Celery workers on a real broker: what a desired state does, and what survives which death."""

import json
import os
import signal
import time
from pathlib import Path

import msgspec
import psutil
from tidepool import procfs
from tidepool.protocol import ProcessUse, Report, Sync

from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import Broker, Host, desired_job

TRAIN_FOREVER = "import time\nwhile True:\n    time.sleep(0.05)\n"
#: Ends with 3 as soon as a file named "end" is in its folder.
END_WHEN_TOLD = "import os, sys, time\nwhile not os.path.exists('end'):\n    time.sleep(0.02)\nsys.exit(3)\n"
GRANDCHILD = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
while True:
    time.sleep(0.05)
"""


def test_carries_out_a_desired_state_and_stops_what_is_absent_from_the_next(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0, 2]))
    report = host.until_running(2)
    assert [rank.slot for rank in report.ranks] == [0, 2]
    host.send_desired()
    report = host.until(lambda report: report.applied_revision == 2 and not report.ranks)
    assert [entry.data["signal"] for entry in host.until_exited(2)] == [signal.SIGTERM] * 2
    wait_until(lambda: not host.processes())


def test_reports_tell_what_the_processes_of_a_command_use(host: Host, tmp_path: Path) -> None:
    burn = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])\n"
    host.send_desired(desired_job(launch_spec(tmp_path, burn), [1]))

    def use(report: Report) -> ProcessUse | None:
        return report.devices[1].processes if report.devices else None

    report = host.until(lambda report: (found := use(report)) is not None and found.cores > 0.05)
    found = use(report)
    assert found is not None
    assert found.cores < 2
    assert found.received_rate is None, "it shares the network of its host"
    assert report.devices[0].processes is None


def test_repeated_late_and_older_desired_jobs_change_nothing(host: Host, tmp_path: Path) -> None:
    desired = desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0], revision=7)
    host.revision = 4
    host.send_desired(desired)
    before = host.until_running(1).ranks
    host.send_desired(desired, revision=5)
    host.send_desired(revision=4)  # older
    host.send_desired(revision=6, echo=time.time() - 31)  # late
    host.send_desired(msgspec.structs.replace(desired, target_revision=6, wanted=[]), revision=5)  # an older target
    host.revision = 6
    host.send_desired(desired)
    assert host.until_applied().ranks == before
    assert host.until_applied().applied_revision == 7


def test_a_lost_desired_is_made_up_for_by_the_next(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    host.send_desired(desired_job(launch, [0], revision=1))
    [rank] = host.until_running(1).ranks
    host.revision += 1  # the one that says [0, 1] with target 2 never arrives
    host.send_desired(desired_job(launch, [0, 1, 2], revision=3))
    ranks = host.until_running(3).ranks
    assert ranks[0] == rank


def test_executor_restarted_while_a_rank_trains_adopts_it_and_its_exit_code(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, END_WHEN_TOLD), [0]))
    [rank] = host.until_running(1).ranks
    host.signal(signal.SIGTERM)
    assert procfs.alive(rank.pid, rank.started_at)
    (tmp_path / "code" / "end").touch()  # the rank ends while no executor watches
    wait_until(lambda: not procfs.alive(rank.pid, rank.started_at))
    host.start()
    [exited] = host.until_exited(1)
    assert (exited.data["pid"], exited.data["code"]) == (rank.pid, 3)
    assert len(host.boots) == 2


def test_executor_killed_the_next_one_knows_its_ranks_before_it_hears_a_desired_state(
    host: Host, tmp_path: Path
) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0, 1]))
    before = host.until_running(2).ranks
    host.signal(signal.SIGKILL)
    host.start()
    after = host.until(lambda report: len(host.boots) == 2)
    assert after.ranks == before
    host.send_desired()
    host.until(lambda report: not report.ranks)


def test_forkserver_killed_ranks_live_and_a_new_one_forks(whole_host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    whole_host.send_desired(desired_job(launch, [0]))
    [rank] = whole_host.until_running(1).ranks
    os.kill(whole_host.forkserver_pid(), signal.SIGKILL)
    (tmp_path / "other").mkdir()
    other = launch_spec(tmp_path / "other", TRAIN_FOREVER)
    whole_host.send_desired(desired_job(launch, [0]), desired_job(other, [1], job=4))
    ranks = whole_host.until_running(2).ranks
    assert ranks[0] == rank
    assert [rank.job for rank in ranks] == [3, 4]


def test_shim_killed_its_ranks_die_with_a_record_and_start_again(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, GRANDCHILD), [0]))
    [rank] = host.until_running(1).ranks
    wait_until(lambda: len(procfs.marked(f"{host.config.mark}.3.1.rank")) == 2)
    before = host.processes()
    [shim] = procfs.marked(f"{host.config.mark}.3.1.shim")
    procfs.kill(shim)
    [exited] = host.until_exited(1)
    assert (exited.data["member_id"], exited.data["signal"], exited.data["error"]["kind"]) == (
        rank.member_id,
        9,
        "ShimLost",
    )
    assert not any(procfs.runs(process) for process in before)
    again = host.until(lambda report: [rank.member_id for rank in report.ranks] == ["host-a.0.2"])
    assert again.ranks[0].pid != rank.pid


def test_shim_killed_while_no_executor_watches(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, GRANDCHILD), [0]))
    host.until_running(1)
    host.signal(signal.SIGKILL)
    [shim] = procfs.marked(f"{host.config.mark}.3.1.shim")
    procfs.kill(shim)
    host.start()
    [exited] = host.until_exited(1)
    assert exited.data["error"]["kind"] == "ShimLost"


def test_processes_that_no_record_knows_are_ended_once_a_desired_says_so(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, GRANDCHILD), [0]))
    host.until_running(1)
    host.signal(signal.SIGKILL)
    (host.config.run_folder / "desired.json").unlink()
    host.start()
    host.until(lambda report: len(host.boots) == 2)
    assert host.processes()
    host.send_desired()
    wait_until(lambda: not host.processes())


def test_another_installation_is_left_alone(host: Host, broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Host(broker, tmp_path / "other", name="host-b", warm_forkserver=host.warm_forkserver)
    other.start()
    try:
        launch = launch_spec(tmp_path, TRAIN_FOREVER)
        other.send_desired(desired_job(launch, [0]))
        [rank] = other.until_running(1).ranks
        host.send_desired()
        host.until_applied()
        assert procfs.alive(rank.pid, rank.started_at)
    finally:
        other.close()


def test_lifeline_owner_killed_nothing_is_left(broker: Broker, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    host = Host(broker, tmp_path, lifeline_fd=reading)
    host.start()
    try:
        host.send_desired(desired_job(launch_spec(tmp_path, GRANDCHILD), [0]))
        host.until_running(1)
        wait_until(lambda: len(host.processes()) == 3)
        forkserver = psutil.Process(host.forkserver_pid())
        everything = [*host.processes(), forkserver]
    finally:
        os.close(writing)
        os.close(reading)
    wait_until(lambda: not any(procfs.runs(process) for process in everything))
    assert host.ended() != 0
    host.close()


def test_broker_outage_costs_no_rank_and_no_entry(broker: Broker, host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, END_WHEN_TOLD), [0]))
    [rank] = host.until_running(1).ranks
    broker.stop()
    try:
        (tmp_path / "code" / "end").touch()
        wait_until(lambda: not procfs.alive(rank.pid, rank.started_at))
    finally:
        broker.start()
    [exited] = host.until_exited(1)
    assert exited.data["code"] == 3


def test_the_broker_is_unknown_to_ranks(whole_host: Host, tmp_path: Path) -> None:
    whole_host.send_desired(desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0]))
    [rank] = whole_host.until_running(1).ranks
    assert whole_host.process is not None
    assert psutil.Process(whole_host.process.pid).cmdline()[0] == f"tidepool executor {whole_host.name}"
    for pid in (rank.pid, whole_host.forkserver_pid()):
        seen = Path(f"/proc/{pid}/environ").read_text() + Path(f"/proc/{pid}/cmdline").read_text()
        assert "BROKER" not in seen
        assert str(whole_host.broker.socket) not in seen


def test_a_stop_is_followed_by_the_next_attempt(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TRAIN_FOREVER)
    host.send_desired(desired_job(launch, [0]))
    host.until_running(1)
    second = tmp_path / "attempt-2"
    second.mkdir()
    host.send_desired(desired_job(msgspec.structs.replace(launch, folder=str(second)), [0], revision=2, attempt=2))
    report = host.until(lambda report: [rank.attempt for rank in report.ranks] == [2])
    assert report.applied_revision == 2
    assert len(host.until_exited(1)) == 1


def test_idle_executor_told_to_end_says_so_and_leaves_nothing(whole_host: Host) -> None:
    whole_host.send_desired()
    whole_host.until_applied()
    forkserver = psutil.Process(whole_host.forkserver_pid())
    whole_host.signal(signal.SIGTERM)
    assert not procfs.runs(forkserver)
    assert whole_host.until(lambda report: report.leaving).ranks == []


def test_second_executor_of_a_host_waits_for_the_first(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0]))
    before = host.until_running(1).ranks
    first = host.process
    host.start()
    assert first is not None
    first.kill()
    first.wait()
    assert host.until(lambda report: len(host.boots) == 2).ranks == before


def test_an_acknowledgement_of_revision_0_is_no_desired_state(host: Host, tmp_path: Path) -> None:
    host.send_desired(desired_job(launch_spec(tmp_path, TRAIN_FOREVER), [0]))
    before = host.until_running(1)
    host.until_told("rank_started", 1)
    numbers = host.acknowledged()
    assert numbers
    host.desired = None  # nothing but the acknowledgement is sent from here on
    host.broker.send(Sync(host.name, 0, time.time(), [], numbers, echo=before.at))
    kept = host.home / "run" / host.name / "journals.json"

    def stored() -> dict[str, int]:
        return {name: number for name, (_, number) in json.loads(kept.read_text()).items() if number}

    wait_until(lambda: numbers.items() <= stored().items(), lambda: f"{numbers} are acknowledged: {stored()}")
    after = host.until(lambda report: report.at > before.at + 2)
    assert (after.applied_revision, after.ranks) == (before.applied_revision, before.ranks)
