"""Tests of what a process may use, on cgroups of both versions written into a folder."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tidepool.cgroup_limits import Usable, usable

GIB = 1024**3
ALL = float(len(os.sched_getaffinity(0)))
OLD = "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n"


def written(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("own", "files", "wanted"),
    [
        pytest.param("0::/\n", {}, Usable(ALL, 64 * GIB), id="no limits"),
        pytest.param(
            "0::/a.slice/b.scope\n",
            {"a.slice/b.scope/cpu.max": "50000 100000\n", "a.slice/memory.max": f"{8 * GIB}\n"},
            Usable(0.5, 8 * GIB),
            id="v2: the tightest of all above",
        ),
        pytest.param(
            "0::/a\n", {"a/cpu.max": "max 100000\n", "a/memory.max": "max\n"}, Usable(ALL, 64 * GIB), id="v2: max"
        ),
        pytest.param(
            OLD,
            {
                "cpu/docker/ab/cpu.cfs_quota_us": "25000\n",
                "cpu/docker/ab/cpu.cfs_period_us": "100000\n",
                "memory/docker/ab/memory.limit_in_bytes": f"{4 * GIB}\n",
            },
            Usable(0.25, 4 * GIB),
            id="v1",
        ),
        pytest.param(
            OLD,
            {
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            Usable(ALL, 64 * GIB),
            id="v1 in a container, without limits",
        ),
    ],
)
def test_it_reads_the_limits(tmp_path: Path, own: str, files: Mapping[str, str], wanted: Usable) -> None:
    assert usable(written(tmp_path, files), own, memory=64 * GIB) == wanted


def test_it_reads_this_machine() -> None:
    here = usable()
    assert 0 < here.cores <= ALL
    assert here.memory_bytes > 0
