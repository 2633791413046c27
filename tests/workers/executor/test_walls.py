"""Walls around the trainings of an executor, by real processes."""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tidepool import procfs
from tidepool.confine.levels import Abilities
from tidepool.env import site_of
from tidepool.json_sockets import socket_path
from tidepool.own_python import own_folder
from tidepool.protocol import ShimSpec

from tests.deep_folders import make_deep
from tests.isolation import wall_around
from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import Host, desired_job
from tests.workers.executor.environments.test_cache import wheel
from workers.executor.config import ExecutorConfig
from workers.executor.environments.cache import Ready
from workers.executor.forkserver import Forkserver
from workers.executor.walls import (
    closed_ports,
    isolation_of,
    remove_temporary,
    shared_memory_of,
    wall_for,
    why_no_training,
)

GIB = 1024**3
ALL = Abilities(landlock=7, mounts=True, calls=True)
#: Tries to read the executor's files and to write beside its own folder; keeps what it may.
TRIES = """
import json, os, sys
from pathlib import Path

def end_of(attempt):
    try:
        attempt()
        return "done"
    except OSError as error:
        return type(error).__name__

results = Path(os.environ["RESULT_DIR"])
home = results.parent
Path.home().joinpath(".cache").mkdir()
(Path("/tmp") / "mine").write_text("")
results.joinpath("ends.json").write_text(json.dumps({
    "records": end_of(lambda: (home / "run" / "host-a" / "desired.json").read_text()),
    "log": end_of(lambda: (home / "host-a.log").read_text()),
    "beside": end_of(lambda: (home / "evil").write_text("")),
    "packages": end_of(lambda: Path(sys.argv[1], "evil.pth").write_text("")),
    "parent": end_of(lambda: os.kill(int(sys.argv[2]), 0)),
}))
"""
INSTALLS = """
import subprocess, sys
subprocess.run(["pip", "install", "--no-index", "--find-links", sys.argv[1], "tidesmall"], check=True)
import tidesmall
print("in this process", tidesmall.VERSION, flush=True)
subprocess.run([sys.executable, "-c", "import tidesmall, msgspec; print('in another', tidesmall.VERSION)"], check=True)
"""


@pytest.fixture
def config(tmp_path: Path) -> ExecutorConfig:
    return ExecutorConfig(tmp_path, "host-a", "redis://site:6390/1", 2, "127.0.0.1", None)


def test_a_training_has_its_own_places_only(host: Host, tmp_path: Path) -> None:
    site = site_of(Path(sys.prefix))
    launch = launch_spec(
        tmp_path, TRIES, arguments=[str(site), str(host.forkserver_pid())], engine="fixed", data_dir=""
    )
    host.send_desired(desired_job(launch, [0], lead=True))
    [ended] = host.until_exited(1)
    assert ended.data["code"] == 0, ended.data
    ends = json.loads((tmp_path / "attempt-1" / "ends.json").read_text())
    assert "done" not in ends.values(), ends
    assert not (site / "evil.pth").exists()
    assert host.last is not None
    assert host.last.facts.isolation == "walled"


def test_pip_installs_into_the_trainings_own_folder(host: Host, tmp_path: Path) -> None:
    wheels = tmp_path / "code" / "wheels"
    wheels.mkdir(parents=True)
    wheel(wheels, "tidesmall", "0.1")
    launch = launch_spec(tmp_path, INSTALLS, arguments=[str(wheels)], engine="fixed", data_dir="")
    host.send_desired(desired_job(launch, [0], lead=True))
    [ended] = host.until_exited(1)
    [log] = (tmp_path / "attempt-1" / "log").glob("*/stdout")
    assert ended.data["code"] == 0, log.read_text()
    assert log.read_text().endswith("in this process 0.1\nin another 0.1\n")
    assert not (site_of(Path(sys.prefix)) / "tidesmall.py").exists()
    assert len([*(tmp_path / ".own").rglob("tidesmall.py")]) == 1


@pytest.mark.parametrize("place", ["python", "python/host-a", "log", "log/shim.host-a.err"])
def test_a_link_of_the_trainings_own_leads_its_next_guardian_nowhere(
    warm_forkserver: Forkserver, tmp_path: Path, place: str
) -> None:
    """Guardians write into folders that an earlier attempt, or a rank on another host, may have put links into."""
    job, outside = tmp_path / "job", tmp_path / "outside"
    for folder in (job, outside / "log", outside / "bin"):
        folder.mkdir(parents=True)
    theirs = outside / "log" / "theirs"
    theirs.write_text("theirs")
    launch = launch_spec(job, TRIES, engine="fixed", data_dir="")
    link = (own_folder(launch) if place.startswith("python") else Path(launch.folder)) / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(theirs if place.endswith(".err") else outside / place.partition("/")[0])
    (outside / "python").mkdir()

    def times() -> dict[Path, int]:
        return {path: path.lstat().st_mtime_ns for path in (outside, *outside.rglob("*"))}

    before, mark = times(), f"test{os.getpid()}-{tmp_path.name}"
    spec = ShimSpec(7, 1, "host-a", "127.0.0.1", mark, True, launch)
    warm_forkserver.fork_shim(spec, socket_path(tmp_path / "shim.sock"), wall_around(job, (), "walled"))
    wait_until(lambda: times() != before or not procfs.marked(f"{mark}.7.1.shim"), "the guardian has ended")
    for process in procfs.marked(mark):
        procfs.kill(process)
    assert times() == before


def test_the_home_is_hidden_and_a_jobs_own_folders_are_not(config: ExecutorConfig, tmp_path: Path) -> None:
    job = tmp_path / "results" / "alice" / "batchworkdir" / "7"
    job.mkdir(parents=True)
    launch = launch_spec(job, "", data_dir="/data/given", data_folders=["/data/picked"])
    desired = msgspec.structs.replace(desired_job(launch, [0]), job=7)
    wall = wall_for(config, desired, Ready())
    assert wall is not None
    assert wall.hidden == (str(tmp_path),)
    assert wall.readable[:3] == (str(job.parent), "/data/given", "/data/picked")
    assert wall.writable == (launch.folder, launch.code_folder, str(job / ".own"))
    assert wall.closed_ports == (6390,)
    assert Path(wall.temporary).stat().st_mode & 0o777 == 0o700
    assert wall_for(replace(config, isolation="shared"), desired, Ready()) is None


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_no_folder_of_another_user_becomes_that_for_temporary_files(
    config: ExecutorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = tmp_path / f"tidepool-trainings-{os.getuid()}"
    if kind == "link":
        place.symlink_to(tmp_path)
    else:
        if os.getuid() != 0:
            pytest.skip("only root can make a folder of another user")
        place.mkdir()
        os.chown(place, 65534, 65534)
    with pytest.raises(PermissionError, match="another user of this machine"):
        wall_for(config, desired_job(launch_spec(tmp_path, ""), [0]), Ready())


def test_temporary_files_are_removed_however_deep_and_through_no_link(config: ExecutorConfig, tmp_path: Path) -> None:
    desired = desired_job(launch_spec(tmp_path, ""), [0])
    wall = wall_for(config, desired, Ready())
    assert wall is not None
    place, theirs = Path(wall.temporary), tmp_path / "theirs"
    theirs.mkdir()
    (place / "link").symlink_to(theirs)
    make_deep(place)
    remove_temporary(config, desired.job, desired.attempt)
    assert (place.exists(), theirs.exists()) == (False, True)


#: Tells the size of /dev/shm.
SHARES = """
import json, os
from pathlib import Path
there = os.statvfs("/dev/shm")
Path(os.environ["RESULT_DIR"], "size.json").write_text(json.dumps(there.f_blocks * there.f_frsize))
"""


def test_shared_memory_is_sized_for_the_training(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, SHARES, engine="fixed", data_dir="", memory_gib_per_gpu=1, max_slots=2)
    host.send_desired(desired_job(launch, [0], lead=True))
    [ended] = host.until_exited(1)
    assert ended.data["code"] == 0, ended.data
    assert json.loads((tmp_path / "attempt-1" / "size.json").read_text()) == 2 * GIB


@pytest.mark.parametrize(
    ("asked", "limit", "most", "slots", "size"),
    [
        (None, None, 1, 4, 16),
        (None, None, 4, 4, 64),
        (None, None, 64, 4, 64),
        (None, 8, 2, 4, 16),
        (24, 8, 2, 4, 48),
        (24, None, 4, 4, 64),
    ],
)
def test_shared_memory_is_that_of_all_slots_that_it_may_get_on_the_host(
    asked: int | None, limit: int | None, most: int, slots: int, size: int, tmp_path: Path
) -> None:
    """The host has 64 GiB. Amounts are GiB."""
    launch = launch_spec(tmp_path, "", memory_gib_per_gpu=asked, max_slots=most)
    assert shared_memory_of(launch, slots, 64 * GIB, limit and limit * GIB) == size * GIB


def test_shared_memory_is_of_the_share_where_the_limit_is_the_share(tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, "", max_slots=2)
    assert shared_memory_of(launch, 4, 64 * GIB, "share") == 32 * GIB


def test_shared_memory_has_no_size_before_the_slots_are_known(tmp_path: Path) -> None:
    assert shared_memory_of(launch_spec(tmp_path, ""), 0, 64 * GIB, None) is None
    assert shared_memory_of(launch_spec(tmp_path, ""), 4, -GIB, None) is None


def test_a_host_without_walls_runs_nothing_unless_its_operator_says_so(config: ExecutorConfig) -> None:
    none = Abilities(why_no_landlock="Its kernel has no Landlock: Linux 5.13 is the first with it.")
    assert "set TIDEPOOL_ISOLATION=shared" in why_no_training(config, none)
    assert isolation_of(config, none)["isolation"] == "none"
    assert isolation_of(config, ALL) == {"isolation": "walled", "isolation_lacks": []}
    shared = replace(config, isolation="shared")
    assert why_no_training(shared, none) == ""
    assert "TIDEPOOL_ISOLATION=shared" in isolation_of(shared, ALL)["isolation_lacks"][0]


@pytest.mark.parametrize(
    ("url", "ports"),
    [("redis://:secret@site/0", (6379,)), ("rediss://site:7000", (7000,)), ("redis+socket:///run/broker.sock", ())],
)
def test_the_brokers_port_is_closed(url: str, ports: tuple[int, ...]) -> None:
    assert closed_ports(url) == ports
