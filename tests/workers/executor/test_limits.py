"""Limits on memory and processes: by the control groups of this machine, and on a tree like that of version 2."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from tidepool.cgroup_limits import usable
from tidepool.protocol import ShimSpec
from tidepool.rank_exits import JOB_GROUP, memory_limit

from tests.runtime.process_tree import launch_spec
from tests.workers.executor.embedded import Broker, Host, desired_job
from workers.executor.config import ConfigError, ExecutorConfig, executor_config
from workers.executor.limits import (
    Amounts,
    Asked,
    ControlGroups,
    JobLimits,
    Limits,
    NoLimitsError,
    control_groups,
    limits_of,
)
from workers.executor.slot_shares import cores_to_use, slot_limits
from workers.executor.walls import asked_of, isolation_of
from workers.models import Host as HostRow

MIB = 1024**2
PER_SLOT = Amounts(64 * MIB, 16)
#: Waits until it is limited, then takes memory.
TAKES_MEMORY = "import sys; sys.stdin.read(1); bytearray(400 * 2**20); print('more than the limit')"
STARTS_PROCESSES = """
import os, sys
sys.stdin.read(1)
started = 0
try:
    while started < 100:
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
        started += 1
except BlockingIOError:
    pass
print(started)
"""
#: Prints how many cores this process and a child have had together for two seconds.
BUSY = """
import os, sys, time
sys.stdin.read(1)
began, child = time.monotonic(), os.fork()
while time.monotonic() - began < 2:
    pass
if child:
    os.waitpid(child, 0)
    times = os.times()
    print((times.user + times.system + times.children_user + times.children_system) / (time.monotonic() - began))
"""
FILLS = "block = bytearray(1500 * 2**20); print('it got the memory')"


@pytest.fixture
def groups() -> Iterator[ControlGroups]:
    try:
        made = control_groups(PER_SLOT, f"test-{os.getpid()}")
    except NoLimitsError as error:
        pytest.skip(str(error))
    yield made
    made.forget("7.1")


def limited(groups: ControlGroups, script: str, slots: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a script in the group of a job."""
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        groups.hold("7.1", process.pid, slots)
        out, _ = process.communicate("go")
    return subprocess.CompletedProcess(words, process.returncode, out)


def test_more_memory_than_the_limit_ends_the_process(groups: ControlGroups) -> None:
    assert limited(groups, TAKES_MEMORY).returncode == -signal.SIGKILL


def test_the_limit_grows_with_the_slots(groups: ControlGroups) -> None:
    assert limited(groups, TAKES_MEMORY, slots=8).stdout == "more than the limit\n"


def test_more_processes_than_the_limit_are_refused(groups: ControlGroups) -> None:
    done = limited(groups, STARTS_PROCESSES)
    assert (done.returncode, int(done.stdout) < 16) == (0, True)


def test_an_empty_group_is_removed(groups: ControlGroups) -> None:
    limited(groups, "pass")
    before = [place for place in groups._places("7.1") if place.exists()]
    groups.forget("7.1")
    assert len(before) == len(groups._places("7.1")) >= 2
    assert not any(place.exists() for place in before)


def test_groups_that_a_killed_executor_left_are_removed(groups: ControlGroups) -> None:
    with subprocess.Popen(["sleep", "60"]) as running:
        groups.hold("7.1", running.pid, 1)
        for place in groups._places("8.1"):
            place.mkdir()
        try:
            begun_again = control_groups(PER_SLOT, f"test-{os.getpid()}")
            assert not any(place.exists() for place in groups._places("8.1"))
            assert begun_again.holds("7.1", running.pid)
        finally:
            running.kill()


def test_what_a_training_has_asked_for_counts_instead_of_the_limit(groups: ControlGroups) -> None:
    words = [sys.executable, "-c", TAKES_MEMORY]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        groups.hold("7.1", process.pid, 1, asked=Asked(memory_gib=1))
        out, _ = process.communicate("go")
    assert (process.returncode, out) == (0, "more than the limit\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree like that of version 2, in which nothing enforces anything."""
    group = tmp_path / "system.slice" / "tidepool.service"
    group.mkdir(parents=True)
    for name, text in {
        "cgroup.controllers": "cpu memory pids\n",
        "cgroup.subtree_control": "",
        "cgroup.procs": "",
    }.items():
        (group / name).write_text(text)
    return tmp_path


OWN = "0::/system.slice/tidepool.service\n"


def test_version_2_gets_its_own_processes_out_of_the_way(tree: Path) -> None:
    control_groups(PER_SLOT, "mark", mount=tree, own=OWN)
    group = tree / "system.slice/tidepool.service"
    assert (group / "executor").is_dir()
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_version_2_is_refused_where_systemd_could_not_start_the_executor_again(tree: Path) -> None:
    """A group that gives controllers to the groups of trainings may contain no process itself."""
    with pytest.raises(NoLimitsError, match=r"needs DelegateSubgroup=executor, which systemd 254 is the first to know"):
        control_groups(PER_SLOT, "mark", mount=tree, own=OWN, by_systemd=True)
    group = tree / "system.slice/tidepool.service"
    assert (group / "cgroup.subtree_control").read_text() == ""
    (group / "executor").mkdir()
    (group / "executor/cgroup.procs").write_text("")
    control_groups(PER_SLOT, "mark", mount=tree, own=f"{OWN.strip()}/executor\n", by_systemd=True)
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_a_slot_may_take_the_share_that_the_site_tells(tmp_path: Path) -> None:
    spec = ShimSpec(7, 1, "host-a", "127.0.0.1", "mark", True, launch_spec(tmp_path, ""))
    config = ExecutorConfig(tmp_path, "host-a", "redis://site/0", 4, "", None, reserved_memory_bytes=1024 * MIB)
    share = asked_of(spec, config).share_bytes
    row = HostRow(ngpus=4, cores=1, usable_memory_bytes=usable().memory_bytes, reserved_memory_bytes=1024 * MIB)
    assert row.share is not None
    assert share == row.share.memory
    per_slot = Amounts("share", 16)
    assert limits_of(per_slot, Asked(share_bytes=share), 2) == Limits(2 * share, 32)
    assert limits_of(per_slot, Asked(memory_gib=3, share_bytes=share), 2) == Limits(6 * 1024 * MIB, 32)
    assert limits_of(per_slot, Asked(share_bytes=0), 1) == Limits(64 * MIB, 16)


def test_version_2_sets_the_files_of_a_job(tree: Path) -> None:
    made = control_groups(PER_SLOT, "mark", mount=tree, own=OWN)
    place = tree / "system.slice/tidepool.service" / f"{JOB_GROUP}mark.7.1"
    place.mkdir()
    files = {"memory.max": "max", "memory.swap.max": "max", "pids.max": "max", "memory.current": "0"}
    for name, text in files.items():
        (place / name).write_text(text)
    made.hold("7.1", 4242, 2)
    expected = {"memory.max": str(128 * MIB), "memory.swap.max": "0", "pids.max": "32", "cgroup.procs": "4242"}
    assert {name: (place / name).read_text() for name in expected} == expected
    (place / "memory.current").write_text(str(100 * MIB))
    made.set("7.1", 1)
    assert (place / "memory.max").read_text() == str(128 * MIB), "nothing is ended because slots are given back"
    (place / "memory.current").write_text(str(10 * MIB))
    made.set("7.1", 1)
    assert (place / "memory.max").read_text() == str(64 * MIB)


def test_cores_are_weighed_by_those_of_the_slots(groups: ControlGroups) -> None:
    places = [place for place in groups._places("7.1") if (place.parent / "cpu.shares").exists()]
    if not places:
        pytest.skip("no cpu controller of version 1 here")
    places[0].mkdir()
    groups.set("7.1", 2, Asked(cores=1.5))
    assert (places[0] / "cpu.shares").read_text() == "3072\n"
    groups.set("7.1", 4, Asked(cores=1000))
    assert (places[0] / "cpu.shares").read_text() == "262144\n"


def test_version_2_weighs_cores_where_it_may(tree: Path) -> None:
    made = control_groups(PER_SLOT, "mark", mount=tree, own=OWN)
    place = tree / "system.slice/tidepool.service" / f"{JOB_GROUP}mark.7.1"
    place.mkdir()
    (place / "cpu.weight").write_text("100")
    made.set("7.1", 2, Asked(cores=3.5))
    assert (place / "cpu.weight").read_text() == "700"


def test_version_2_holds_a_training_to_its_cores(tree: Path) -> None:
    made = control_groups(Amounts(cores="share"), "mark", mount=tree, own=OWN)
    place = tree / "system.slice/tidepool.service" / f"{JOB_GROUP}mark.7.1"
    place.mkdir()
    (place / "cpu.max").write_text("max 100000")
    made.set("7.1", 2, Asked(cores=3.5))
    assert (place / "cpu.max").read_text() == "700000 100000"


def test_a_ceiling_of_cores_holds_a_training_while_others_are_idle() -> None:
    try:
        made = control_groups(Amounts(cores=0.2), f"test-{os.getpid()}")
    except NoLimitsError as error:
        pytest.skip(str(error))
    try:
        with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            made.hold("7.1", process.pid, 1)
            out, _ = process.communicate(b"go")
    finally:
        made.forget("7.1")
    assert 0 < float(out) < 0.35, "fractions of a core that two busy processes have had together"


@pytest.mark.parametrize(
    ("limit", "asked", "slots", "cores"),
    [
        pytest.param("share", Asked(cores=4), 2, 8, id="share"),
        pytest.param(2.5, Asked(cores=2), 2, 5, id="number"),
        pytest.param(2.5, Asked(cores=16, asks_for_cores=True), 2, 32, id="asked for"),
        pytest.param("share", Asked(cores=0), 1, 0.1, id="all cores are reserved"),
        pytest.param(None, Asked(cores=16, asks_for_cores=True), 2, None, id="no limit"),
    ],
)
def test_the_ceiling_is_that_of_the_slots(
    limit: float | Literal["share"] | None, asked: Asked, slots: int, cores: float | None
) -> None:
    assert limits_of(Amounts(cores=limit), asked, slots).cores == cores


def test_threads_follow_a_limit_below_the_share(tmp_path: Path) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "redis://site/0", 1, "", None)
    assert cores_to_use(config) == usable().cores
    assert cores_to_use(replace(config, slot_limits=Amounts(cores=0.5))) == 0.5
    assert cores_to_use(replace(config, slot_limits=Amounts(cores=1e6))) == usable().cores


def test_the_site_is_told_the_limits_of_a_slot(tmp_path: Path) -> None:
    share = Amounts("share", 16, "share")
    config = ExecutorConfig(tmp_path, "host-a", "redis://site/0", 2, "", None, slot_limits=share)
    assert slot_limits(config) == Limits(usable().memory_bytes // 2, 16, usable().cores / 2)
    assert slot_limits(replace(config, slot_limits=Amounts())) == Limits(None, None)


def test_a_group_that_may_not_weigh_cores_limits_all_the_same(tree: Path) -> None:
    group = tree / "system.slice/tidepool.service"
    (group / "cgroup.controllers").write_text("memory pids\n")
    control_groups(PER_SLOT, "mark", mount=tree, own=OWN)
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_version_2_of_a_restarted_executor_has_the_same_place(tree: Path) -> None:
    group = tree / "system.slice/tidepool.service"
    (group / "executor").mkdir()
    (group / "executor" / "cgroup.procs").write_text("")
    (group / "cgroup.subtree_control").write_text("cpu memory pids")
    made = control_groups(PER_SLOT, "mark", mount=tree, own="0::/system.slice/tidepool.service/executor\n")
    assert made._places("7.1") == [group / f"{JOB_GROUP}mark.7.1"]


def test_a_group_without_the_controllers_says_so(tree: Path) -> None:
    (tree / "system.slice/tidepool.service/cgroup.controllers").write_text("cpu\n")
    with pytest.raises(NoLimitsError, match="no controller for memory, pids: let systemd delegate"):
        control_groups(PER_SLOT, "mark", mount=tree, own=OWN)


def test_a_host_that_cannot_limit_runs_nothing(tmp_path: Path) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "redis://site/0", 2, "", None, slot_limits=PER_SLOT)
    facts = isolation_of(config, None, "its kernel has no control groups")
    assert facts["isolation"] == "none"
    assert "TIDEPOOL_SLOT_PROCESSES say: its kernel has no control groups. Mend that" in facts["isolation_lacks"][0]
    assert JobLimits(Amounts(), "mark").why_none == ""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("TIDEPOOL_SLOT_MEMORY", "32", "at least 64MiB"),
        ("TIDEPOOL_SLOT_MEMORY", "32MiB", "at least 64MiB"),
        ("TIDEPOOL_SLOT_MEMORY", "much", "at least 64MiB"),
        ("TIDEPOOL_SLOT_PROCESSES", "7", "at least 8"),
        ("TIDEPOOL_SLOT_CORES", "0.05", "at least 0.1"),
        ("TIDEPOOL_SLOT_CORES", "many", "at least 0.1"),
    ],
)
def test_a_limit_too_low_is_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    with pytest.raises(ConfigError, match=words):
        executor_config(base | {name: text})
    good = executor_config(base | {"TIDEPOOL_SLOT_MEMORY": "1GiB", "TIDEPOOL_SLOT_PROCESSES": "512"})
    assert good.slot_limits == replace(PER_SLOT, memory_bytes=1024 * MIB, processes=512)
    assert executor_config(base | {"TIDEPOOL_SLOT_CORES": "1.5"}).slot_limits == Amounts(cores=1.5)


def test_limits_of_a_slot_may_be_its_share(tmp_path: Path) -> None:
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    given = {"TIDEPOOL_SLOT_MEMORY": "share", "TIDEPOOL_SLOT_CORES": "share"}
    assert executor_config(base | given).slot_limits == Amounts("share", cores="share")


def test_the_limit_is_read_from_the_jobs_own_group(tmp_path: Path) -> None:
    place = tmp_path / "memory" / "above" / f"{JOB_GROUP}mark.7.1"
    place.mkdir(parents=True)
    (place / "memory.limit_in_bytes").write_text(f"{64 * MIB}\n")
    assert memory_limit(f"4:memory:/above/{JOB_GROUP}mark.7.1\n", tmp_path) == 64 * MIB
    assert memory_limit("4:memory:/above\n", tmp_path) is None


def test_a_training_that_takes_too_much_is_told_its_limit(
    broker: Broker, tmp_path: Path, groups: ControlGroups
) -> None:
    host = Host(broker, tmp_path, environment={"TIDEPOOL_SLOT_MEMORY": "1GiB"})
    host.start()
    try:
        launch = launch_spec(tmp_path, FILLS, engine="fixed", data_dir="")
        host.send_desired(desired_job(launch, [0], lead=True))
        [ended] = host.until_exited(1)
    finally:
        host.close()
    assert ended.data["error"]["kind"] == "OutOfMemory"
    assert "memory ran out: it may use 1 GiB on this host" in ended.data["error"]["message"]
