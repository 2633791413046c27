"""Forkservers of whole environments: the ones that are kept, and for how long; none is started here."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import wait_until
from workers.executor import forkserver
from workers.executor.environments.cache import Ready
from workers.executor.forkserver import Forkserver, Forkservers


@pytest.fixture
def pool(tmp_path: Path) -> Forkservers:
    return Forkservers(tmp_path, Path("/pool"), None)


def use(pool: Forkservers, *names: str) -> None:
    for name in names:
        pool.of(Ready(f"/environments/{name}", is_whole=True), [])


def test_a_layer_has_the_parent_of_the_cluster(pool: Forkservers) -> None:
    assert pool.of(Ready("/environments/a"), []) is pool.of(Ready(), []) is pool.own


def test_jobs_in_one_image_share_a_container_unless_they_read_other_folders(pool: Forkservers) -> None:
    image = Ready("/environments/a", is_whole=True, image="b")
    shared = pool.of(image, [Path("/pool/code")])
    assert pool.of(image, [Path("/pool/other"), Path("/pool/data")]) is shared
    elsewhere = pool.of(image, [Path("/pool/code"), Path("/data"), Path("/data/below")])
    assert elsewhere is not shared
    assert elsewhere.runs.data == (Path("/data"),)
    assert pool.of(image, [Path("/data")]) is elsewhere
    pool.end_unused({"a"})
    assert len(pool.names) == 2


def test_of_many_unused_the_newest_are_kept(pool: Forkservers) -> None:
    use(pool, *"abcdef")
    pool.end_unused({"a"})
    assert {*pool.names} == {*"acdef"}
    use(pool, "b", "c")
    pool.end_unused({"a"})
    assert {*pool.names} == {*"abcef"}


def test_one_that_was_not_used_for_long_is_ended(pool: Forkservers, monkeypatch: pytest.MonkeyPatch) -> None:
    use(pool, *"ab")
    monkeypatch.setattr(forkserver, "_KEPT_SECONDS", 0.0)
    pool.end_unused({"a"})
    assert {*pool.names} == {"a"}


def test_those_of_an_earlier_executor_are_known(pool: Forkservers, tmp_path: Path) -> None:
    (tmp_path / "forkserver-a.log").touch()
    (tmp_path / "forkserver.log").touch()
    pool.recall()
    assert [*pool.names] == ["a"]
    pool.end()
    assert not [*pool.names]
    assert [path.name for path in tmp_path.glob("*.log")] == ["forkserver.log"]


#: A forkserver that answers as those did that knew no handshake.
_FORMER = """
import json, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    client, _ = listener.accept()
    client.recv(65536)
    client.sendall(json.dumps({"pid": os.getpid(), "started_at": 0.0}).encode() + b"\\n")
    client.close()
"""


def test_one_of_a_release_without_the_handshake_is_ended_and_another_started(tmp_path: Path) -> None:
    server = Forkserver(tmp_path, None)
    former = subprocess.Popen([sys.executable, "-c", _FORMER, str(server.socket)])
    try:
        wait_until(server.socket.exists, "the former forkserver")
        assert not server.ready(), "the new one is only being started"
        assert former.wait(60.0)
        wait_until(server.ready, "the new forkserver")
        assert server._pid != former.pid
    finally:
        server.end()
        with suppress(ProcessLookupError):
            former.kill()
