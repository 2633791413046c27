"""Limits on the temporary files of a training: what is counted, and the end of one that takes more."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidepool.confine.probe import probe
from tidepool.scratch_watch import SCRATCH_FULL, ScratchWatch, sizes_below

from tests.runtime.process_tree import launch_spec
from tests.workers.executor.embedded import Broker, Host, desired_job
from workers.executor.config import ConfigError, executor_config

MIB = 1024**2
#: Writes so many MiB of temporary files in each rank, and stays.
WRITES = """
import os, sys, time
from pathlib import Path
Path("/tmp", "mine-" + os.environ["TIDEPOOL_SLOT"]).write_bytes(bytes(int(sys.argv[1]) * 2**20))
Path(os.environ["RESULT_DIR"], "written-" + os.environ["TIDEPOOL_SLOT"]).touch()
while True:
    time.sleep(1)
"""


def bytes_in(folder: Path) -> int:
    return sum(sizes_below(str(folder)))


def test_files_are_counted_once_and_links_are_not_followed(tmp_path: Path) -> None:
    empty = bytes_in(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(bytes(3 * MIB))
    os.link(tmp_path / "below" / "file", tmp_path / "again")
    (tmp_path / "outside").symlink_to("/usr")
    assert 3 * MIB <= bytes_in(tmp_path) - empty < 4 * MIB


def test_a_file_with_a_hole_takes_what_is_written(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert bytes_in(tmp_path) < MIB


#: Tells the bytes in a folder, in a mount namespace with another folder mounted below it.
TELLS = """
import ctypes, sys
from tidepool.scratch_watch import sizes_below
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(b"none", b"/", b"", 1 << 18 | 1 << 14, None) == 0
folder, source, place = sys.argv[1:]
assert libc.mount(source.encode(), place.encode(), b"", 1 << 12, None) == 0
print(sum(sizes_below(folder)))
"""


def test_what_is_mounted_there_is_not_counted(tmp_path: Path) -> None:
    if os.getuid() != 0 or not probe().mounts:
        pytest.skip("only root can mount")
    source, folder = tmp_path / "results", tmp_path / "temporary"
    place = folder / "my results"
    source.mkdir()
    place.mkdir(parents=True)
    (source / "file").write_bytes(bytes(5 * MIB))
    (folder / "file").write_bytes(bytes(3 * MIB))
    command = [sys.executable, "-P", "-c", TELLS, str(folder), str(source), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 3 * MIB <= int(done.stdout) < 4 * MIB


def test_without_a_limit_nothing_is_measured() -> None:
    assert ScratchWatch(None, "host-a").next_look_at is None


@pytest.fixture
def host(broker: Broker, tmp_path: Path) -> Iterator[Host]:
    if not probe().mounts:
        pytest.skip("trainings have no folder of temporary files of their own here")
    made = Host(broker, tmp_path, environment={"TIDEPOOL_SLOT_SCRATCH": "64MiB"})
    made.start()
    yield made
    made.close()


def test_a_training_that_writes_too_much_ends_with_the_limit(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, WRITES, arguments=["80"], engine="fixed", data_dir="")
    host.send_desired(desired_job(launch, [0], lead=True))
    [ended] = host.until_exited(1)
    error = ended.data["error"]
    assert error["kind"] == SCRATCH_FULL
    assert "the temporary files of this training on host-a take 8" in error["message"]
    assert "it may have 64 MiB there (TIDEPOOL_SLOT_SCRATCH)" in error["message"]


@pytest.mark.parametrize("text", ["63MiB", "much"])
def test_a_wrong_limit_is_refused(text: str, tmp_path: Path) -> None:
    variables = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "a", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    assert executor_config(variables | {"TIDEPOOL_SLOT_SCRATCH": "64MiB"}).slot_scratch_bytes == 64 * MIB
    with pytest.raises(ConfigError, match="TIDEPOOL_SLOT_SCRATCH must be a size"):
        executor_config(variables | {"TIDEPOOL_SLOT_SCRATCH": text})
    shared = {"TIDEPOOL_ISOLATION": "shared", "TIDEPOOL_SLOT_SCRATCH": "1GiB"}
    with pytest.raises(ConfigError, match="needs walls"):
        executor_config(variables | shared)
