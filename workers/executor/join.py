"""Command that makes this machine a GPU host: exchanges a join token, checks shared folders, and execs the executor.

`python -m workers.executor.join --url https://gpus.example.org --token join_...`

The site's answer is stored below the home, so that the same command starts the host again later.
"""

import argparse
import json
import os
import secrets
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from tidepool.protocol import PROTOCOL_VERSION

from workers.executor.broker_url import is_readable
from workers.executor.config import ConfigError, executor_config
from workers.executor.machine import mounts, placed, refuse_shared_folder

__all__ = [
    "KEY_FILE",
    "JoinError",
    "Joined",
    "Place",
    "celery_command",
    "check_folders",
    "executor_command",
    "executor_environment",
    "join",
]

#: Name of a host's key in its folder.
KEY_FILE = "host-key"
_ANSWER_SECONDS = 30.0
_BROKER_SECONDS = 5.0
#: Variables of the control plane that an executor must not inherit.
_NOT_FOR_EXECUTORS = ("TIDEPOOL_BROKER_URL", "TIDEPOOL_DATABASE_URL", "TIDEPOOL_DATABASE_URL_FILE")


class JoinError(RuntimeError):
    """This machine could not join; the sentence says what to do."""


@dataclass(frozen=True)
class Place:
    """Name of this host, and the folders of its executor."""

    home: Path
    host: str
    #: Value of TIDEPOOL_RUN; None: `run` below the home.
    run: Path | None = None

    @property
    def folder(self) -> Path:
        return (self.run or self.home / "run") / self.host

    @property
    def joined_file(self) -> Path:
        return self.folder / "joined.json"

    @property
    def broker_file(self) -> Path:
        return self.folder / "broker-url"

    @property
    def key_file(self) -> Path:
        """File with the key by which the host and the control plane sign their messages."""
        return self.folder / KEY_FILE


class Joined(msgspec.Struct, frozen=True):
    """The site's answer, without the broker's URL, which has a password, and the host's key: they have own files."""

    url: str
    host: str
    results: str
    data_roots: list[str]
    mark: str
    protocol: int


def join(url: str, token: str, place: Place) -> Joined:
    """Exchange the token, and store the answer before anything else can fail."""
    try:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Check that the folder is writable before the token is used up.
        _write_private(place.folder / "trial", "")
        (place.folder / "trial").unlink()
    except OSError as error:
        raise JoinError(f"{place.folder} cannot be written ({error.strerror}): let this user own it.") from None
    answer = _ask(url, token, place.host)
    joined = msgspec.convert({**answer, "url": url}, Joined)
    _write_private(place.broker_file, answer["broker_url"])
    if answer.get("key"):
        _write_private(place.key_file, answer["key"])
    else:  # of a site of a former release
        place.key_file.unlink(missing_ok=True)
    _write_private(place.joined_file, msgspec.json.encode(joined).decode())
    return joined


def earlier(url: str, place: Place) -> Joined | None:
    """Return the answer from when this machine joined this site under this name; None if it has not."""
    if not (place.joined_file.exists() and place.broker_file.exists()):
        return None
    joined = msgspec.json.decode(place.joined_file.read_bytes(), type=Joined)
    return joined if (joined.url, joined.host) == (url, place.host) else None


def check_folders(joined: Joined) -> None:
    """Check that the shared folders have the same paths here as on the site. Raises JoinError."""
    results = Path(joined.results)
    try:
        mark = (results / ".tidepool").read_text(encoding="ascii").strip()
    except OSError as error:
        raise JoinError(
            f"{results} is not the shared folder of all hosts ({error.strerror}): mount it there on this machine, too."
        ) from None
    if mark != joined.mark:
        raise JoinError(f"{results} is not the same folder here as on the site: mount the shared folder there.")
    trial = results / f".trial-{joined.host}-{secrets.token_hex(4)}"
    try:
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise JoinError(
            f"{results} cannot be written here ({error.strerror}): run this command as the user who owns it."
        ) from None
    for root in joined.data_roots:
        if not os.access(root, os.R_OK | os.X_OK):
            raise JoinError(f"The datasets' folder {root} cannot be read here: mount it on this machine, too.")


def check_broker(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    where = parts.netloc.rpartition("@")[2] or parts.path
    try:
        with Connection(url, connect_timeout=_BROKER_SECONDS) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_BROKER_SECONDS)
    except (OperationalError, OSError) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise JoinError(
                f"The broker's certificate at {where} is not trusted here ({error}): set TIDEPOOL_BROKER_CA_FILE to "
                "the certificate of the authority that signed it."
            ) from None
        raise JoinError(
            f"The broker at {where} refuses this machine ({error}): open that port to it, or join again with "
            "a new token (--again) if the password has changed."
        ) from None


def celery_command(app: str, *options: str) -> list[str]:
    """Return the command line of a Celery worker with little logging."""
    quiet = ["--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [sys.executable, "-m", "celery", "-A", app, "worker", *options, *quiet]


def executor_command(host: str) -> list[str]:
    place = ("-Q", f"host.{host}", "-n", f"{host}@tidepool")
    return celery_command("workers.executor.app", "-P", "threads", "-c", "2", *place)


def executor_environment(place: Place, address: str, virtual_slots: int | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_EXECUTORS}
    slots = {} if virtual_slots is None else {"TIDEPOOL_VIRTUAL_SLOTS": str(virtual_slots)}
    return {
        **kept,
        **slots,
        "TIDEPOOL_HOME": str(place.home),
        "TIDEPOOL_HOST_NAME": place.host,
        "TIDEPOOL_ADDRESS": address,
        "TIDEPOOL_BROKER_URL_FILE": str(place.broker_file),
        **({"TIDEPOOL_HOST_KEY_FILE": str(place.key_file)} if place.key_file.exists() else {}),
        "PYTHONUNBUFFERED": "1",
    }


def _ask(url: str, token: str, host: str) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 (the scheme was checked)
        # A site of a former release does not read the parameter.
        f"{url}/api/v1/join/?broker_user=own",
        data=json.dumps({"token": token, "host": host}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        # Ignore proxies, which are for downloads, between a host and its site.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
            values: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise JoinError(_sentence(error)) from None
    except (OSError, ValueError) as error:
        raise JoinError(f"{url} does not answer as Tidepool does ({error}): is it the site's address?") from None
    if values.get("protocol") != PROTOCOL_VERSION:
        raise JoinError(f"{url} runs another version of Tidepool: use the same one on this machine.")
    return values


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"The site refuses with status {error.code}: is it the site's address?"


def _write_private(file: Path, text: str) -> None:
    scratch = file.with_name(f"{file.name}.new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    scratch.replace(file)


def _own_address(url: str) -> str:
    """Return the address from which this machine reaches the site, the default at which other hosts reach it."""
    parts = urllib.parse.urlsplit(url)
    family, kind, protocol, _, place = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)  # sends nothing
        return str(probe.getsockname()[0])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.executor.join", description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True, help="address of the site")
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token", help="from an administrator: manage.py join_token")
    token.add_argument("--token-file", type=Path, help="file that contains the token")
    parser.add_argument("--name", default="", help="name of the host (default: this machine's name)")
    parser.add_argument("--address", default="", help="address at which other hosts reach this one")
    parser.add_argument("--home", type=Path, default=Path.home() / ".tidepool", help="folder for sockets and records")
    parser.add_argument("--virtual-slots", type=int, help="number of CPU processes to offer instead of GPUs")
    parser.add_argument("--again", action="store_true", help="use the token although this machine has joined before")
    return parser.parse_args()


def _run(given: argparse.Namespace) -> NoReturn:
    url = given.url.rstrip("/")
    if not is_readable(url) or urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise JoinError(
            f"{url!r} is not the address of a site: give one such as https://gpus.example.org or http://[fd00::1]:8000."
        )
    run = os.environ.get("TIDEPOOL_RUN")
    name = given.name or socket.gethostname().partition(".")[0]
    place = Place(given.home.resolve(), name, Path(run).resolve() if run else None)
    refuse_shared_folder(place.folder, mounts())
    joined = None if given.again else earlier(url, place)
    if joined is None:
        try:
            token = given.token or given.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise JoinError(f"{given.token_file} cannot be read ({error.strerror}).") from None
        joined = join(url, token, place)
    check_folders(joined)
    chosen = given.address or ("" if os.environ.get("TIDEPOOL_INTERFACE") else _own_address(url))
    environment = executor_environment(place, chosen, given.virtual_slots)
    config = placed(executor_config(environment))
    check_broker(config.broker_url)
    sys.stdout.write(f"{place.host} joins {url}.\n")
    sys.stdout.flush()
    os.execve(sys.executable, executor_command(place.host), environment)  # noqa: S606 (the executor replaces this process)


def main() -> None:
    try:
        _run(_arguments())
    except JoinError as error:
        sys.exit(f"join: {error}")
    except ConfigError as error:
        sys.exit(f"join: {error}.")


if __name__ == "__main__":
    main()
