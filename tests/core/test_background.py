"""Real workers with real children: work beside work, errors, sudden deaths, and an end in bounded time."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.journey.running_stack import ROOT
from tests.waiting import PATIENCE_SECONDS, wait_until

#: Every task appends a line to the file of its name when it begins.
_PROGRAM = """
import logging, os, signal, sys, threading, time
from pathlib import Path

from core import background
from core.background import BackgroundTask, BackgroundWorker
from core.process import still_alive, stop_at_signals

logging.basicConfig(level=logging.INFO)
folder = Path(sys.argv[1])


def begin(name):
    with (folder / name).open("a") as file:
        file.write(f"{os.getpid()}\\n")


def wait(stop):
    begin("wait")
    stop.wait()
    begin("stopped")


def hang(stop):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    begin("hang")
    threading.Event().wait()


def fail(stop):
    begin("fail")
    raise ValueError("this task fails")


def crash(stop):
    begin("crash")
    os.kill(os.getpid(), signal.SIGSEGV)


def once(stop):
    begin("once")
    (folder / "work").unlink()


def is_broken():
    begin("broken")
    raise LookupError("no database")


TASKS = {
    "wait": BackgroundTask("wait", wait),
    "hang": BackgroundTask("hang", hang),
    "fail": BackgroundTask("fail", fail),
    "crash": BackgroundTask("crash", crash),
    "once": BackgroundTask("once", once, (folder / "work").exists),
    "broken": BackgroundTask("broken", wait, is_broken),
}
background._GRACE_SECONDS = 1.0
background._STUCK_SECONDS = float(os.environ.get("STUCK_SECONDS", 90))
BackgroundWorker([TASKS[name] for name in sys.argv[2:]], stop_at_signals()).run()
"""


class Worker:
    """A worker in a process of its own."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process = folder, process

    def begun(self, task: str) -> list[int]:
        """Return the pids of the children that ran the task."""
        file = self.folder / task
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait_for(self, task: str, times: int = 1) -> list[int]:
        return wait_until(lambda: len(pids := self.begun(task)) >= times and pids, f"{task}, {times} times") or []

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def worker(folder: Path, *tasks: str, **environment: str) -> Iterator[Worker]:
    settings = {"DJANGO_SETTINGS_MODULE": "webapp.settings", "TIDEPOOL_HOME": str(folder), "PYTHONPATH": "runtime:."}
    command = [sys.executable, "-c", textwrap.dedent(_PROGRAM), str(folder), *tasks]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **settings, **environment}, stdout=log, stderr=log
        )
    try:
        yield Worker(folder, process)
    finally:
        process.kill()
        process.wait()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_task_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    with worker(tmp_path, "hang", "once") as running:
        running.wait_for("hang")
        (tmp_path / "work").touch()
        running.wait_for("once")


def test_a_child_runs_only_while_there_is_work(tmp_path: Path) -> None:
    (tmp_path / "work").touch()
    with worker(tmp_path, "once") as running:
        [first] = running.wait_for("once")
        wait_until(lambda: not is_running(first), "the child has ended")
        (tmp_path / "work").touch()
        _, second = running.wait_for("once", times=2)
        assert second != first
        assert running.stop() == 0
        assert "starts again" not in running.log()


@pytest.mark.parametrize(
    ("task", "logged"), [("fail", "ValueError: this task fails"), ("crash", "was ended by SIGSEGV")]
)
def test_a_task_that_fails_is_logged_and_starts_again_while_others_go_on(
    tmp_path: Path, task: str, logged: str
) -> None:
    with worker(tmp_path, task, "wait") as running:
        running.wait_for(task, times=3)
        assert logged in running.log()
        assert [f"it starts again in {seconds} s" in running.log() for seconds in (1, 2)] == [True, True]
        assert len(running.begun("wait")) == 1
        assert running.stop() == 0


def test_a_look_for_work_that_fails_is_logged_and_ends_nothing(tmp_path: Path) -> None:
    with worker(tmp_path, "broken", "wait") as running:
        running.wait_for("wait")
        looks = running.wait_for("broken", times=2)
        assert set(looks) == {running.process.pid}
        assert "LookupError: no database" in running.log()
        assert running.stop() == 0


def test_sigterm_ends_all_work(tmp_path: Path) -> None:
    with worker(tmp_path, "wait") as running:
        [child] = running.wait_for("wait")
        assert running.stop() == 0
        assert running.begun("stopped") == [child]
        assert not is_running(child)


def test_work_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    with worker(tmp_path, "hang", "wait") as running:
        [hanging], [waiting] = running.wait_for("hang"), running.wait_for("wait")
        begun = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - begun > 1
        assert running.begun("stopped") == [waiting]
        assert not is_running(hanging)
        assert "task=hang did not stop" in running.log()


def test_no_child_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    with worker(tmp_path, "wait", "hang") as running:
        children = [*running.wait_for("wait"), *running.wait_for("hang")]
        running.process.kill()
        wait_until(lambda: not any(map(is_running, children)), "the children end, too")
        assert running.begun("stopped") == []


def test_a_child_without_a_sign_of_life_ends_the_workers_own(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    with worker(tmp_path, "once", "hang", TIDEPOOL_ALIVE_FILE=str(alive), STUCK_SECONDS="1") as running:
        wait_until(alive.exists, "the first sign of life")
        wait_until(lambda: "task=hang has given no sign of life" in running.log(), "the child is stuck")
        last = alive.stat().st_mtime
        # The worker still works, and says no more that all is well.
        (tmp_path / "work").touch()
        running.wait_for("once")
        assert alive.stat().st_mtime == last
