"""The ceiling of a training's cores, as a rank reads it: on trees like those of the kernel, and in a real group."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tidepool.core_ceiling import CoreCeiling

from workers.executor.limits import Amounts, NoLimitsError, control_groups

V1, V2 = "4:cpu,cpuacct:/above/tidepool.mark.7.1\n", "0::/above/tidepool.mark.7.1\n"
#: Keeps a core busy for a while in its group, and prints what it reads there.
BUSY = """
import sys, time
sys.stdin.readline()
from tidepool.core_ceiling import CoreCeiling
ceiling, end = CoreCeiling(), time.monotonic() + 2
while time.monotonic() < end:
    pass
print(ceiling.cores, *ceiling.used_up())
"""


def written(place: Path, files: Mapping[str, str]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text)


@pytest.mark.parametrize(
    ("own", "folder", "ceiling"),
    [
        (V1, "cpu/above/tidepool.mark.7.1", {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}),
        (V2, "above/tidepool.mark.7.1", {"cpu.max": "150000 100000\n"}),
    ],
)
def test_periods_count_from_the_beginning(tmp_path: Path, own: str, folder: str, ceiling: Mapping[str, str]) -> None:
    place = tmp_path / folder
    written(place, {**ceiling, "cpu.stat": "nr_periods 100\nnr_throttled 40\nthrottled_time 9\n"})
    found = CoreCeiling(tmp_path, own)
    assert (found.cores, found.used_up()) == (1.5, (0, 0))
    written(place, {"cpu.stat": "nr_periods 300\nnr_throttled 90\nthrottled_time 9\n"})
    assert found.used_up() == (200, 50)


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("", {}),
        ("4:cpu:/above\n", {}),
        ("4:memory:/above/tidepool.mark.7.1\n", {}),
        (V2, {}),
        (V2, {"cpu.max": "max 100000\n", "cpu.stat": "usage_usec 7\n"}),
    ],
)
def test_without_a_ceiling_there_is_none(tmp_path: Path, own: str, files: Mapping[str, str]) -> None:
    written(tmp_path / "above/tidepool.mark.7.1", files)
    found = CoreCeiling(tmp_path, own)
    assert (found.cores, found.used_up()) == (None, (0, 0))


def test_a_real_group_tells_how_often_its_cores_were_used_up() -> None:
    try:
        groups = control_groups(Amounts(cores=0.2), f"test-{os.getpid()}")
    except NoLimitsError as error:
        pytest.skip(str(error))
    try:
        words = [sys.executable, "-c", BUSY]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            groups.hold("7.1", process.pid, 1)
            out, _ = process.communicate("go\n")
    finally:
        groups.forget("7.1")
    cores, periods, used_up = out.split()
    assert float(cores) == 0.2
    assert int(used_up) >= 0.5 * int(periods) > 0
