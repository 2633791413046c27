"""Parts that are forked from `up` are as independent of it as processes that were started."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from webapp.embedded.forked import STOP_SIGNALS
from webapp.embedded.processes import Children, ChildSpec

#: A process that starts a part and dies at once, without a chance to stop it.
_DIES = """
import os, pathlib, signal, sys, time
import django
django.setup()
from webapp.embedded.forked import ForkedProcess
with open(sys.argv[1], "ab", buffering=0) as log:
    part = ForkedProcess("part", lambda: time.sleep(600), dict(os.environ), pathlib.Path("."), log)
print(part.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def children(tmp_path: Path, said: list[str]) -> Iterator[Children]:
    found = Children(logs=tmp_path / "logs", say=said.append)
    yield found
    found.stop(["part"], grace_seconds=0)


def start(children: Children, folder: Path, work: Callable[[], object], **environment: str) -> int:
    """Start a part that runs `work`, and return its pid."""
    children.start(ChildSpec("part", [], environment, folder, work=work))
    return children.by_name["part"].process.pid


def log(children: Children) -> str:
    return children.log("part").read_text()


def sleep() -> None:
    os.write(1, b"up\n")
    time.sleep(600)


def wait_for_word(children: Children) -> None:
    wait_until(lambda: "up" in log(children), "the part writes to its log")


def test_has_nothing_of_its_parent_but_memory(children: Children, tmp_path: Path) -> None:
    reader, writer = os.pipe()

    def tell() -> None:
        facts = {
            "descriptors": [number for number in range(1000) if Path(f"/proc/self/fd/{number}").exists()],
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "session": os.getsid(0) == os.getpid(),
            "default signals": [signal.getsignal(number) == signal.SIG_DFL for number in STOP_SIGNALS],
            "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "title": psutil.Process().cmdline()[0],
        }
        os.write(1, json.dumps(facts).encode())

    try:
        start(children, tmp_path, tell, ONE="1")
        wait_until(lambda: log(children), "the part has said what it has")
    finally:
        os.close(reader)
        os.close(writer)
    assert json.loads(log(children)) == {
        "descriptors": [0, 1, 2],
        "folder": str(tmp_path),
        "environment": {"ONE": "1"},
        "session": True,
        "default signals": [True] * len(STOP_SIGNALS),
        "blocked signals": [],
        "title": "tidepool part",
    }


def test_ends_by_the_polite_signal_though_its_parent_has_a_handler(
    children: Children, tmp_path: Path, said: list[str]
) -> None:
    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        pid = start(children, tmp_path, sleep)
        wait_for_word(children)
        children.stop(["part"], grace_seconds=10)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not psutil.pid_exists(pid)
    assert (said, asked.is_set()) == ([], False)


def test_starts_again_when_it_was_killed(children: Children, tmp_path: Path, said: list[str]) -> None:
    pid = start(children, tmp_path, sleep)
    wait_for_word(children)
    os.kill(pid, signal.SIGKILL)

    def is_another() -> bool:
        children.watch()
        child = children.by_name["part"]
        return child.process.pid != pid and child.process.poll() is None

    wait_until(is_another, "another part runs")
    assert said == [f"part was ended by SIGKILL; it starts again in 0.5 s (its log: {tmp_path}/logs/part.log)."]


def test_an_error_ends_it_with_a_code(children: Children, tmp_path: Path, said: list[str]) -> None:
    def fail() -> None:
        raise ValueError("this part has no port")

    start(children, tmp_path, fail)
    assert children.by_name["part"].process.wait(30) == 1
    children.watch()
    assert "part ended with code 1" in said[0]


def test_ends_with_the_process_that_forked_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DIES, str(tmp_path / "log")]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "webapp.settings", "TIDEPOOL_HOME": str(tmp_path)}
    died = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    pid = int(died.stdout)
    wait_until(lambda: not is_running(pid), "the part has ended")


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
