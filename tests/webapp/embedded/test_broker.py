import os
import stat
import subprocess
from pathlib import Path

import psutil
import pytest
import redis
from django.core.management import CommandError

from tests.waiting import wait_until
from webapp.embedded import broker


def fake_server(folder: Path, name: str, said: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)


def test_prefers_the_systems_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_server(tmp_path, "redis-server", "Redis server v=7.0.15 sha=0")
    fake_server(tmp_path, "valkey-server", "Valkey server v=8.0.1 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = broker.find_broker("auto")
    assert (found.path, found.version, found.source) == (tmp_path / "valkey-server", (8, 0, 1), "system")


def test_passes_over_one_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_server(tmp_path, "valkey-server", "no version at all")
    fake_server(tmp_path, "redis-server", "Redis server v=6.0.16 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(broker, "_SYSTEM_NAMES", ("valkey-server", "redis-server"))
    monkeypatch.setattr(broker.shutil, "which", lambda name: str(tmp_path / name))
    assert broker.find_broker("auto").source == "wheel"
    with pytest.raises(CommandError, match=r"version 6\.2 or newer was found \(--broker system\): install"):
        broker.find_broker("system")


def test_short_socket_paths_stay_in_the_home_and_long_ones_move(tmp_path: Path) -> None:
    assert broker.socket_path(Path("/srv/run")) == Path("/srv/run/broker.sock")
    moved = broker.socket_path(tmp_path / ("x" * 100))
    assert len(str(moved).encode()) <= 100
    assert moved == broker.socket_path(tmp_path / ("x" * 100)), "the same home has the same socket"
    assert stat.S_IMODE(moved.parent.stat().st_mode) == 0o700
    moved.parent.rmdir()


@pytest.mark.parametrize("choice", ["wheel", "auto"])
def test_serves_this_user_alone_by_a_socket_without_a_port(tmp_path: Path, choice: broker.Choice) -> None:
    socket = broker.socket_path(tmp_path)
    command = broker.broker_command(broker.find_broker(choice), socket, tmp_path / 'kept "here"', "open sesame")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: broker.is_answering(socket, "open sesame"), "the broker answers")
        assert not broker.is_answering(socket)
        assert not broker.is_answering(socket, "open")
        assert "sesame" not in " ".join(psutil.Process(server.pid).cmdline())
        [configuration] = (tmp_path / 'kept "here"').glob("*/server.conf")
        assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert psutil.Process(server.pid).net_connections("inet") == []
        with redis.Redis(unix_socket_path=str(socket), password="open sesame", decode_responses=True) as client:
            settings = client.config_get("appendonly", "appendfsync", "maxmemory-policy")
        assert settings == {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    finally:
        server.terminate()
        server.wait(10)
    assert not socket.exists()
    assert not broker.is_answering(socket)
