"""Sealed trainings, by real processes: devices of other kinds stand for GPUs, and a fake driver tells their numbers."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidepool.confine.devices import Device, give
from tidepool.confine.levels import Abilities
from tidepool.confine.probe import Apart, probe

from tests.confine.site_scene import FUSE, TUN, made_gpu
from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.devices.fake_driver import FakeDriver, compiled
from tests.workers.executor.embedded import Broker, Host, desired_job
from workers.executor.config import ConfigError, ExecutorConfig, executor_config
from workers.executor.devices.slot_devices import SlotDevices
from workers.executor.limits import Amounts, NoLimitsError, control_groups
from workers.executor.users import UserIds
from workers.executor.walls import isolation_of, tried_users, why_no_training

LIMITS = {"TIDEPOOL_SLOT_MEMORY": "2GiB", "TIDEPOOL_SLOT_PROCESSES": "256"}
SEALED = {"TIDEPOOL_ISOLATION": "sealed", "TIDEPOOL_USER_IDS": "70001-70009", **LIMITS}
ALL = Abilities(landlock=7, mounts=True, calls=True, users=True, devices=True)
#: Tells again and again which devices it finds, and how attempts end to open each and to make a neighbour's.
TELLS = """
import errno, json, os, time
from pathlib import Path

def end_of(attempt):
    try:
        attempt()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]

def opened(place):
    os.close(os.open(place, os.O_RDONLY))

results = Path(os.environ["RESULT_DIR"])
facts = json.loads((results / "facts.json").read_text())
told = results / f"told.{os.environ['TIDEPOOL_SLOT']}.json"
while True:
    found = {
        "names": sorted(os.listdir("/dev")),
        "gpus": {name: end_of(lambda: opened(f"/dev/{name}")) for name in facts["gpus"]},
        "shown": end_of(lambda: opened(results / "neighbour")),
        "made": end_of(lambda: os.mknod(results / "mine", 0o020666, facts["number"])),
        "made in /dev": end_of(lambda: os.mknod("/dev/mine", 0o020666, facts["number"])),
        "others": {name: end_of(lambda: opened(f"/dev/{name}")) for name in ("null", "ptmx", "urandom")},
    }
    told.with_suffix(".new").write_text(json.dumps(found))
    told.with_suffix(".new").rename(told)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = compiled(tmp_path_factory.mktemp("fake-driver"))
    folder.chmod(0o755)  # the users of trainings read it, too
    return folder


@pytest.fixture
def gpus() -> Iterator[tuple[str, str]]:
    if os.getuid() != 0:
        pytest.skip("only root can make devices")
    with made_gpu(TUN) as first, made_gpu(FUSE) as second:
        yield first, second


@pytest.fixture
def host(broker: Broker, tmp_path: Path, library: Path, gpus: tuple[str, str]) -> Iterator[Host]:
    found = probe(Apart(70001, (str(tmp_path),), has_own_devices=True))
    if not found.devices:
        pytest.skip(f"trainings cannot be sealed here: {found.why_no_devices}")
    try:
        control_groups(Amounts(processes=64), "try", filters_devices=True)
    except NoLimitsError as error:
        pytest.skip(str(error))
    driver = FakeDriver(library, tmp_path / "driver")
    numbers = [int(name.removeprefix("nvidia")) for name in gpus]
    driver.set(count=2, gpu0_uuid="a", gpu1_uuid="b", gpu0_minor=numbers[0], gpu1_minor=numbers[1])
    made = Host(broker, tmp_path, environment={**driver.environment, **SEALED, "TIDEPOOL_VIRTUAL_SLOTS": ""})
    made.start()
    yield made
    made.close()


def told(tmp_path: Path, slot: int) -> dict[str, Any]:
    """Return what the rank in a slot told last."""
    place = tmp_path / "attempt-1" / f"told.{slot}.json"
    found: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {"gpus": {}, "names": []}
    return found


def test_a_training_opens_the_gpus_of_its_slots_only(host: Host, tmp_path: Path, gpus: tuple[str, str]) -> None:
    first, second = gpus
    launch = launch_spec(tmp_path, TELLS, engine="elastic", launch_seconds=600.0, data_dir="")
    number = os.stat(f"/dev/{second}").st_rdev
    results = tmp_path / "attempt-1"
    (results / "facts.json").write_text(json.dumps({"gpus": gpus, "number": number}))
    os.mknod(results / "neighbour", stat.S_IFCHR | 0o666, number)
    host.until(lambda report: report.facts.ngpus == 2 and report.facts.isolation)
    assert host.last is not None
    assert (host.last.facts.isolation, host.last.facts.isolation_lacks) == ("sealed", [])

    def send(revision: int, *slots: int) -> None:
        host.send_desired(desired_job(launch, [*slots], revision, owner_number=3))

    def sees(*names: str) -> bool:
        host.listen()
        return {name for name in told(tmp_path, 0)["names"] if name.startswith("nvidia")} == {*names}

    send(1, 0)
    wait_until(lambda: sees(first), lambda: f"its GPU: {told(tmp_path, 0)} {host.log()}")
    found = told(tmp_path, 0)
    assert found["gpus"] == {first: "done", second: "ENOENT"}
    assert (found["shown"], found["made"], found["made in /dev"]) == ("EACCES", "EACCES", "EACCES")
    assert found["others"] == {"null": "done", "ptmx": "done", "urandom": "done"}

    send(2, 0, 1)
    wait_until(lambda: sees(first, second), lambda: f"the second GPU: {told(tmp_path, 0)} {host.log()}")
    assert told(tmp_path, 0)["gpus"] == {first: "done", second: "done"}
    send(3, 0)
    wait_until(lambda: sees(first), lambda: f"one GPU again: {told(tmp_path, 0)} {host.log()}")
    assert told(tmp_path, 0)["gpus"] == {first: "done", second: "ENOENT"}


def test_no_device_is_made_for_a_process_that_is_not_the_trainings(tmp_path: Path) -> None:
    """A sealed training can have its guardian say any number."""
    with subprocess.Popen(["/bin/sleep", "600"]) as another:
        try:
            with pytest.raises(PermissionError, match="is none of this training"):
                give(another.pid, {"nvidia0": Device("c", 1, 3)}, lambda pid: False)
        finally:
            another.kill()
    with pytest.raises(FileNotFoundError):
        give(2**22 + 1, {}, lambda pid: True)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_no_device_is_made_where_a_training_has_put_another_dev(tmp_path: Path, kind: str) -> None:
    """In a user namespace, a process of the training can take any folder of its own for the root of all files."""
    if os.getuid() != 0:
        pytest.skip("only root can make devices")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "nvidia7").touch()
    root = tmp_path / "root"
    root.mkdir()
    if kind == "link":
        (root / "dev").symlink_to(elsewhere)
    else:
        (root / "dev").mkdir()
        (root / "dev" / "nvidia7").touch()
    code = f"import os, time; os.chroot({str(root)!r}); os.chdir('/'); print('in', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(OSError):
                give(process.pid, {"nvidia0": Device("c", 1, 3)}, lambda pid: True)
        finally:
            process.kill()
    assert os.listdir(elsewhere) == ["nvidia7"]
    if kind == "folder":
        assert os.listdir(root / "dev") == ["nvidia7"]


def test_a_process_is_a_jobs_by_the_kernels_record() -> None:
    try:
        groups = control_groups(Amounts(processes=64), f"holds-{os.getpid()}", filters_devices=True)
    except NoLimitsError as error:
        pytest.skip(str(error))
    with subprocess.Popen(["/bin/sleep", "600"]) as inside, subprocess.Popen(["/bin/sleep", "600"]) as outside:
        try:
            groups.hold("7.1", inside.pid, 1)
            assert groups.holds("7.1", inside.pid)
            assert not groups.holds("7.1", outside.pid)
            with pytest.raises(FileNotFoundError):
                groups.holds("8.1", inside.pid)
        finally:
            for process in (inside, outside):
                process.kill()
                process.wait()
            wait_until(lambda: not (groups.forget("7.1") or groups._place_of_devices("7.1").exists()), "no group")


def test_sealed_trainings_need_limits(tmp_path: Path) -> None:
    variables = {
        "TIDEPOOL_HOME": str(tmp_path),
        "TIDEPOOL_HOST_NAME": "host-a",
        "TIDEPOOL_BROKER_URL": "redis://site/0",
        **SEALED,
    }
    assert executor_config(variables).isolation == "sealed"
    with pytest.raises(ConfigError, match="sealed needs limits: set TIDEPOOL_SLOT_MEMORY"):
        executor_config({name: value for name, value in variables.items() if name != "TIDEPOOL_SLOT_PROCESSES"})
    with pytest.raises(ConfigError, match="sealed needs TIDEPOOL_USER_IDS"):
        executor_config({name: value for name, value in variables.items() if name != "TIDEPOOL_USER_IDS"})


@pytest.fixture
def config(tmp_path: Path) -> ExecutorConfig:
    place = (tmp_path, "host-a", "redis://site/0", None, "", None)
    return ExecutorConfig(*place, isolation="sealed", user_ids=UserIds(70001, 70009))


def test_a_host_that_cannot_seal_runs_nothing_and_says_why(config: ExecutorConfig) -> None:
    none = Abilities(landlock=7, mounts=True, calls=True, users=True, why_no_devices="its executor lacks CAP_MKNOD")
    assert "cannot be sealed here: its executor lacks CAP_MKNOD. Mend that" in why_no_training(config, none)
    assert isolation_of(config, none)["isolation"] == "none"
    no_groups = isolation_of(config, ALL, "its kernel has no control groups for devices")
    assert no_groups["isolation"] == "none"
    assert "cannot be sealed here: its kernel has no control groups for devices." in no_groups["isolation_lacks"][0]
    assert isolation_of(config, ALL) == {"isolation": "sealed", "isolation_lacks": []}
    assert tried_users(config)[:3] == ("--apart", "70001", "--sealed")


def test_shared_and_divided_gpus_are_said(config: ExecutorConfig) -> None:
    halves = ExecutorConfig(**{**vars(config), "slots_per_gpu": 2})
    found = isolation_of(halves, ALL)
    assert found["isolation"] == "sealed"
    assert "TIDEPOOL_SLOTS_PER_GPU=2" in found["isolation_lacks"][0]
    SlotDevices(config.run_folder).update(["GPU-a", "MIG-b"])
    found = isolation_of(config, ALL)
    assert found["isolation"] == "none"
    assert "MIG instances" in found["isolation_lacks"][0]
