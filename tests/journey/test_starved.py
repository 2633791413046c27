"""A control plane without processor time: it is late, loses no host, and is well again soon after.

Web, scheduler and control worker share a small part of one core, by the kernel's own quota.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_recorder
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.root]

_CGROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000
#: Short, so that a host that is not heard would soon be lost.
_LEASE_SECONDS = 10
_PARTS = ("tidepool scheduler", "tidepool web", "tidepool control")


@contextmanager
def starved(pids: list[int], percent: float) -> Iterator[None]:
    """Limit these processes, together, to a part of one core."""
    group = _CGROUPS / f"tidepool-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(_PERIOD_US * percent / 100)))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for one in (group / "cgroup.procs").read_text().split():
            (_CGROUPS / "cgroup.procs").write_text(one)
        group.rmdir()


def parts(stack: RunningStack) -> list[int]:
    """Return the control plane's processes that take, judge and show."""
    found = [one.pid for one in stack.family() if any(part in " ".join(one.cmdline()) for part in _PARTS)]
    assert len(found) == len(_PARTS), [one.cmdline() for one in stack.family()]
    return found


def states(stack: RunningStack) -> list[str]:
    """Return the states of the hosts from the database itself, because the site is starved."""
    database = f"file:{stack.home / 'tidepool.sqlite3'}?mode=ro"
    with closing(sqlite3.connect(database, uri=True, timeout=30)) as rows:
        return [state for (state,) in rows.execute("SELECT state FROM workers_host ORDER BY name")]


def delay(stack: RunningStack) -> float:
    """Return how far the control plane says that it is behind."""
    return float(httpx.get(f"{stack.url}/healthz", timeout=30, trust_env=False).json()["reports_delay_seconds"])


@pytest.mark.parametrize(
    ("percent", "seconds"),
    [(6, 45), pytest.param(6, 300, marks=pytest.mark.long), pytest.param(3, 300, marks=pytest.mark.long)],
)
def test_a_starved_control_plane_loses_nobody(percent: float, seconds: float) -> None:
    if not (_CGROUPS / "cpu.cfs_quota_us").exists() or os.geteuid() != 0:
        leave_out("no cgroup of our own with a quota of processor time: needs root and cgroup v1")
    with fresh_home() as home:
        stack = RunningStack(
            home,
            free_port(),
            ("--hosts", "2", "--slots-per-host", "2"),
            {"TIDEPOOL_LEASE_SECONDS": str(_LEASE_SECONDS)},
        )
        stack.start()
        try:
            _starve(stack, percent, seconds)
        finally:
            stack.stop()


def _starve(stack: RunningStack, percent: float, seconds: float) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
        options: dict[str, Any] = {"step-seconds": 0.1, "checkpoint-every": 1000}
        training = Training(api, stack.home, "starved", min_slots=2, max_slots=4, epochs=100_000, **options)
        training.wait_for_size(4)
        members, seen = training.members, set[str]()
        wait_until(lambda: states(stack) == ["ONLINE"] * 2, "both hosts are online")
        with starved(parts(stack), percent):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                seen.update(states(stack))
                time.sleep(0.5)
            steps = training.steps
        lifted = time.monotonic()
        wait_until(lambda: delay(stack) < 3, lambda: f"the reports are taken; the delay is {delay(stack)} s")
        took = time.monotonic() - lifted
        seen.update(states(stack))
        assert seen == {"ONLINE"}
        assert took <= 10, f"caught up only after {took:.0f} s"
        wait_until(lambda: training.steps > steps, "the training goes on")
        assert training.members == members
        reasons = [event["reason"]["code"] for event in api.get(f"jobs/{training.id}/events/").json()["results"]]
        assert not {"HOST_LOST", "RANK_LOST"} & set(reasons)
