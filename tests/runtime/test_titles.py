"""Titles of real processes: what ps, top and nvidia-smi show of ranks, shims, coordinators and forkservers."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from tidepool import procfs

from tests.runtime.lab import Lab
from tests.waiting import wait_until

#: Arguments with which the training lasts as long as the test looks at it.
SLOWLY = ["--step-seconds", "0.2"]


def titles(lab: Lab) -> list[str]:
    """Return the titles of living ranks, sorted."""
    found = []
    for rank in lab.started().values():
        with suppress(psutil.NoSuchProcess):  # one that has ended
            found.append(title(rank["pid"]))
    return sorted(found)


def title(pid: int) -> str:
    """The kernel shows the memory of the command line, which a shorter title leaves empty at its end."""
    first, *rest = psutil.Process(pid).cmdline()
    assert set(rest) <= {""}
    return first


def test_ranks_show_their_place_and_the_next_one_after_a_resize(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=SLOWLY, owner="alice")
    for size in (1, 3, 2):
        lab.size(size)
        lab.wait_for_size(size)
        expected = [f"tidepool rank {rank} of {size}: training 1 (alice)" for rank in range(size)]
        wait_until(lambda expected=expected: titles(lab) == expected, lambda: f"{titles(lab)} {lab.story()}")
    [first, *_] = lab.started().values()
    assert Path(f"/proc/{first['pid']}/comm").read_text() == "tidepool rank 0\n"
    assert psutil.Process(first["pid"]).nice() == psutil.Process().nice() + 5
    if (session := Path(f"/proc/{first['pid']}/autogroup")).exists():
        wait_until(lambda: session.read_text().endswith("nice 5\n"), session.read_text)


def test_titles_leave_marks_and_environments_alone(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=SLOWLY, owner="x" * 500)
    lab.size(2)
    lab.wait_for_size(2)
    ranks = {rank["pid"] for rank in lab.started().values()}
    marked = {process.pid for process in procfs.marked(lab.mark)}
    assert marked == {*ranks, lab.shims["a"]["pid"], lab.coordinator["pid"]}
    for pid in ranks:
        assert title(pid).startswith("tidepool rank"), "cut off, not lost"
        assert "x" * 500 not in title(pid)
        assert psutil.Process(pid).environ()["PATH"]


def test_the_processes_around_the_ranks_are_named(make_lab: Callable[..., Lab], forkserver: Path) -> None:
    lab = make_lab("mlp.py", arguments=SLOWLY)
    lab.size(1)
    lab.wait_for_size(1)
    shim = psutil.Process(lab.shims["a"]["pid"])
    assert title(shim.pid) == "tidepool shim: training 1"
    assert title(lab.coordinator["pid"]) == "tidepool coordinator: training 1"
    assert titles(lab) == ["tidepool rank 0 of 1: training 1"]
    parent = shim.parent()
    assert parent is not None
    assert title(parent.pid) == f"tidepool forkserver: {forkserver}"


def test_ranks_of_a_fixed_size_have_titles_too(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("gang.py", arguments=["save"], sizes={"a": 2}, engine="fixed", min_slots=2, owner="bob")
    lab.size(2)
    expected = [f"tidepool rank {rank} of 2: training 1 (bob)" for rank in range(2)]
    wait_until(lambda: titles(lab) == expected, lambda: f"{titles(lab)} {lab.story()}")
