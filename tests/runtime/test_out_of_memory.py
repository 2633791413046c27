"""A rank that the kernel kills for want of memory, in a real cgroup with a limit, and one that somebody else kills."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.lab import Lab, running_forkserver
from tests.waiting import wait_until

CGROUPS = Path("/sys/fs/cgroup")
#: More than a forkserver, a shim, a coordinator and a small rank need; less than the machine has.
LIMIT_BYTES = 1500 << 20


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Path]:
    """A memory cgroup below our own, with a limit; skips where we may not make one, as in most containers."""
    place, limit = own_memory_cgroup()
    cgroup = place / f"tidepool-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here ({error}): run as root, outside of a container")
    try:
        if not (cgroup / limit).exists():
            pytest.skip(f"{place} does not hand its memory controller on to cgroups below it")
        (cgroup / limit).write_text(str(LIMIT_BYTES))
        yield cgroup
    finally:
        remove(cgroup)


def own_memory_cgroup() -> tuple[Path, str]:
    """Our own, and the name of the file with its limit: version 1's where memory is a hierarchy of its own."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return CGROUPS / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
    return CGROUPS / path.lstrip("/"), "memory.max"


def remove(cgroup: Path) -> None:
    """Once all that ran in it has ended."""
    deadline = time.monotonic() + 10
    while (cgroup / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    cgroup.rmdir()


def test_a_rank_without_memory_is_told_from_one_that_was_killed(limited: Path, tmp_path: Path) -> None:
    with running_forkserver(tmp_path, limited) as forkserver:
        lab = Lab(forkserver, tmp_path / "job", "greedy.py", sizes={"a": 2})
        try:
            lab.size(2)
            first, second = wait_until(lambda: len(lab.member_ids()) == 2 and lab.member_ids(), lab.story)
            lab.wait_for_steps(2)  # from then on both have the training's state
            lab.kill(first)
            killed = wait_until(lambda: lab.exits().get(first), lab.story)
            wait_until(lambda: first not in lab.member_ids() and len(lab.member_ids()) == 2, lab.story)
            lab.wait_for_steps(2)
            (lab.folder / f"greedy-{second}").touch()
            starved = wait_until(lambda: lab.exits().get(second), lab.story)
            failed = wait_until(lambda: lab.journal("rank_failed"), lab.story)
            lab.wait_for_steps(1)  # the other trains on
        finally:
            lab.stop()

    assert (killed["signal"], killed["by_script"], killed["error"]) == (signal.SIGKILL, False, None)
    assert (starved["signal"], starved["by_script"]) == (signal.SIGKILL, True)
    assert starved["error"]["kind"] == "OutOfMemory"
    assert [failure["member_id"] for failure in failed] == [second]


def test_memory_is_named_where_a_loaders_worker_was_killed_for_it(limited: Path, tmp_path: Path) -> None:
    with running_forkserver(tmp_path, limited) as forkserver:
        lab = Lab(forkserver, tmp_path / "job", "greedy_worker.py", sizes={"a": 1}, engine="single", min_slots=1)
        try:
            lab.size(1)
            [end] = wait_until(lambda: lab.exits().values(), lab.story)
        finally:
            lab.stop()

    assert (end["code"], end["by_script"], end["error"]["kind"]) == (1, True, "OutOfMemory")
    assert "DataLoader worker" in end["error"]["message"]
