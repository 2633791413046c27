import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from webapp.embedded.processes import Children, ChildSpec, open_log, rotate

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
IGNORES_TERM = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def children(tmp_path: Path, said: list[str], clock: Clock) -> Iterator[Children]:
    found = Children(logs=tmp_path / "logs", say=said.append, clock=clock)
    yield found
    found.stop(["one", "two"], grace_seconds=0)


def spec(name: str, command: list[str], tmp_path: Path) -> ChildSpec:
    return ChildSpec(name, command, dict(os.environ), tmp_path)


def wait_for_word(children: Children, name: str) -> None:
    wait_until(lambda: "up" in children.log(name).read_text(), f"{name} writes to its log")


def kill_and_watch(children: Children, name: str) -> int:
    pid = children.by_name[name].process.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: children.by_name[name].process.poll() is not None, f"{name} has ended")
    children.watch()
    return pid


def test_writes_output_to_the_childs_own_log(children: Children, tmp_path: Path) -> None:
    children.start(spec("one", SLEEPS, tmp_path))
    wait_for_word(children, "one")
    assert children.log("one").stat().st_mode & 0o777 == 0o600


def test_starts_a_dead_child_again_and_says_so(
    children: Children, tmp_path: Path, said: list[str], clock: Clock
) -> None:
    children.start(spec("one", SLEEPS, tmp_path))
    wait_for_word(children, "one")
    old = kill_and_watch(children, "one")
    assert said == [
        f"one was ended by SIGKILL; it starts again in 0.5 s (its log: {tmp_path}/logs/one.log).",
    ]
    children.watch()
    assert children.by_name["one"].process.poll() is not None, "started again before its backoff was over"
    clock.seconds += 0.5
    children.watch()
    assert children.by_name["one"].process.poll() is None
    assert children.by_name["one"].process.pid != old


def test_doubles_the_backoff_until_a_child_has_settled(
    children: Children, tmp_path: Path, said: list[str], clock: Clock
) -> None:
    children.start(spec("one", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path))
    for _ in range(3):
        wait_until(lambda: children.by_name["one"].process.poll() is not None, "one has ended")
        children.watch()
        clock.seconds += 5
        children.watch()
    assert [sentence.split("(")[0] for sentence in said] == [
        f"one ended with code 3; it starts again in {wait} s " for wait in ("0.5", "1", "2")
    ]
    wait_until(lambda: children.by_name["one"].process.poll() is not None, "one has ended")
    clock.seconds += 15
    children.watch()
    assert "in 0.5 s" in said[-1]


def test_stops_a_child_that_ignores_the_polite_signal(children: Children, tmp_path: Path, said: list[str]) -> None:
    children.start(spec("one", IGNORES_TERM, tmp_path))
    wait_for_word(children, "one")
    pid = children.by_name["one"].process.pid
    children.stop(["one"], grace_seconds=0.1)
    assert not psutil.pid_exists(pid)
    assert said == ["one did not stop within 0.1 s: killed."]


def test_does_not_restart_what_it_stopped(children: Children, tmp_path: Path, clock: Clock, said: list[str]) -> None:
    children.start(spec("one", SLEEPS, tmp_path))
    wait_for_word(children, "one")
    children.stop(["one"], grace_seconds=5)
    clock.seconds += 100
    children.watch()
    assert said == []


def test_inherits_only_the_descriptors_it_was_given(children: Children, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    other_reader, other_writer = os.pipe()
    try:
        code = "import os; print('up', sorted(int(n) for n in os.listdir('/proc/self/fd')), flush=True)"
        command = [sys.executable, "-c", code + "; import time; time.sleep(600)"]
        children.start(ChildSpec("one", command, dict(os.environ), tmp_path, descriptors=(reader,)))
        wait_for_word(children, "one")
        listed = children.log("one").read_text()
        inherited = set(map(int, listed[listed.index("[") + 1 : listed.index("]")].split(", ")))
        assert reader in inherited
        assert not inherited & {writer, other_reader, other_writer}
    finally:
        for descriptor in (reader, writer, other_reader, other_writer):
            os.close(descriptor)


PARENT = """
import os, sys, time
from pathlib import Path
from webapp.embedded.processes import Children, ChildSpec
children = Children(logs=Path(sys.argv[1]), say=print)
children.start(ChildSpec("one", {command!r}, dict(os.environ), Path("/")))
print(children.by_name["one"].process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("command", [SLEEPS, IGNORES_TERM], ids=["polite", "stubborn"])
def test_children_end_when_their_parent_is_killed(tmp_path: Path, command: list[str]) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(command=command), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: (tmp_path / "one.log").read_text(), "the child runs")
        parent.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child is gone")


def test_a_log_past_its_limit_moves_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "web.log"
    with open_log(path) as log:
        log.write(b"first line\n")
        assert not rotate(path, limit_bytes=11)
        log.write(b"second line\n")
        assert rotate(path, limit_bytes=11)
        log.write(b"third line\n")
    assert path.read_text() == "third line\n"
    assert (tmp_path / "logs" / "web.log.1").read_text() == "first line\nsecond line\n"


def test_a_second_rotation_replaces_the_first(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    for line in (b"one\n", b"two\n"):
        with open_log(path) as log:
            log.write(line)
        assert rotate(path, limit_bytes=0)
    assert (tmp_path / "web.log.1").read_text() == "two\n"
    assert path.read_text() == ""


def test_a_log_that_is_not_there_needs_no_rotation(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "web.log")
