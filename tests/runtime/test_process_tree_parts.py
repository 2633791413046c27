"""The parts below shims and ranks: processes as the kernel shows them, and lines over sockets."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tidepool import json_sockets, procfs

from tests.waiting import wait_until

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, procfs.MARK_VARIABLE: f"part{os.getpid()}.7.1.rank"}
    with subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_alive_only_under_its_own_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    started_at = procfs.started_at(sleeper.pid)
    assert procfs.alive(sleeper.pid, started_at)
    assert not procfs.alive(sleeper.pid, started_at - 60)


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    started_at = procfs.started_at(sleeper.pid)
    sleeper.kill()
    wait_until(lambda: not procfs.alive(sleeper.pid, started_at))
    assert psutil.pid_exists(sleeper.pid)  # not reaped yet


def test_a_process_that_has_gone_is_no_error(sleeper: subprocess.Popen[bytes]) -> None:
    process = psutil.Process(sleeper.pid)
    assert procfs.runs(process)
    procfs.kill(process)
    assert sleeper.wait(10) == -9
    assert not procfs.runs(process)
    procfs.kill(process)
    assert (procfs.cpu_seconds([process]), procfs.memory_bytes([process])) == (0.0, 0)
    with pytest.raises(ProcessLookupError):
        procfs.started_at(sleeper.pid)


def test_trees_hold_the_root_and_what_is_below(sleeper: subprocess.Popen[bytes]) -> None:
    tree = procfs.trees([os.getpid(), 2**22])
    assert os.getpid() in [process.pid for process in tree[os.getpid()]]
    assert sleeper.pid in [process.pid for process in tree[os.getpid()]]
    assert tree[2**22] == []
    assert sleeper.pid in [process.pid for process in procfs.descendants(os.getpid())]


@pytest.mark.parametrize(("prefix", "found"), [("7.1.rank", True), ("7.1", True), ("7", True), ("7.1.ra", False)])
def test_marks_are_matched_by_whole_parts(sleeper: subprocess.Popen[bytes], prefix: str, found: bool) -> None:
    marked = procfs.marked(f"part{os.getpid()}.{prefix}")
    assert (sleeper.pid in [process.pid for process in marked]) is found


def test_a_mark_needs_reserved_room(sleeper: subprocess.Popen[bytes]) -> None:
    script = "from tidepool import procfs; procfs.set_mark('x')"
    environment = {name: value for name, value in os.environ.items() if name != procfs.MARK_VARIABLE}
    runtime = {"PYTHONPATH": str(Path(procfs.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-c", script], env={**environment, **runtime}, capture_output=True)
    assert b"reserved_mark" in ended.stderr


def test_a_path_too_long_for_a_socket_falls_back_to_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    long = tmp_path / ("x" * 120) / "shim.sock"
    path = json_sockets.socket_path(long)
    assert len(os.fsencode(path)) <= 100 + len(os.fsencode(tmp_path))
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path == json_sockets.socket_path(long) != json_sockets.socket_path(long.with_name("other.sock"))


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    json_sockets.socket_path(tmp_path / ("x" * 120)).parent.chmod(0o755)
    with pytest.raises(json_sockets.PeerError, match="not private"):
        json_sockets.socket_path(tmp_path / ("x" * 120))


def test_a_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    with json_sockets.listen(json_sockets.socket_path(tmp_path / "shim.sock")):
        assert (tmp_path / "shim.sock").stat().st_mode & 0o777 == 0o700


def test_lines_are_cut_where_they_end() -> None:
    lines = json_sockets.Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o\n\nthree") == [b"two", b""]
    assert lines.feed(b"\n") == [b"three"]


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(json_sockets.PeerError):
        json_sockets.Lines().feed(b"x" * (4 * 1024 * 1024 + 1))
