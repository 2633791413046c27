"""Parses environment variables into settings, or raises an error with one sentence about the problem."""

import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from tidepool.units import size_in

from workers.executor.broker_url import IN_BRACKETS, is_readable, verified

__all__ = [
    "Environment",
    "certificate_file",
    "embedded_broker_url",
    "secret_key",
    "with_secrets",
    "write_private",
]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
_MAIL_SCHEMES = frozenset({"mailto", "mailtos"})
_BROKER_SCHEMES = frozenset({"redis", "rediss", "redis+socket"})


@dataclass(frozen=True)
class Environment:
    """Typed access to `TIDEPOOL_*` variables. An empty variable counts as absent."""

    variables: Mapping[str, str]

    def text(self, name: str, default: str) -> str:
        return self.variables.get(name, "").strip() or default

    def number(self, name: str, default: float, *, least: float) -> float:
        text = self.text(name, str(default))
        try:
            value = float(text)
        except ValueError:
            raise ImproperlyConfigured(f"{name} is {text!r}: set it to a number, such as {default:g}.") from None
        if not least <= value < float("inf"):
            raise ImproperlyConfigured(f"{name} is {text}: set it to {least:g} or more.")
        return value

    def size(self, name: str) -> int:
        """A number of bytes, such as 2TiB; 0: none is set."""
        text = self.text(name, "")
        size = size_in(text) if text else 0
        if size is None:
            raise ImproperlyConfigured(f"{name} is {text!r}: set it to a size, such as 2TiB.")
        return size

    def flag(self, name: str) -> bool:
        text = self.text(name, "").lower()
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise ImproperlyConfigured(f"{name} is {text!r}: set it to 1 or 0.")

    def words(self, name: str, default: str) -> list[str]:
        """Return a list separated by commas."""
        return [word for word in (part.strip() for part in self.text(name, default).split(",")) if word]

    def host_names(self, name: str, default: str) -> list[str]:
        """Names and addresses as browsers write them in `Host`, separated by commas."""
        found = self.words(name, default)
        for word in found:
            if _is_ipv6(word):
                raise ImproperlyConfigured(f"{name} is {word}: write an IPv6 address in brackets, [{word}].")
        return found

    def networks(self, name: str) -> list[str]:
        """Addresses and networks, separated by commas."""
        found = self.words(name, "")
        for word in found:
            try:
                ipaddress.ip_network(word)
            except ValueError:
                raise ImproperlyConfigured(
                    f"{name} is {word!r}, which is not an address: give addresses such as 10.0.0.4 or 172.18.0.0/16."
                ) from None
        return found

    def origin(self, name: str) -> str:
        """Return a scheme, a host name and maybe a port, as browsers write them in `Origin`; "": none is given."""
        text = self.text(name, "").rstrip("/").lower()
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and parts.hostname and text == f"{parts.scheme}://{parts.netloc}"
        if text and not is_one:
            raise ImproperlyConfigured(f"{name} is an address without a path, such as https://mlflow.example.org.")
        return text

    def folder(self, name: str, default: Path) -> Path:
        return _absolute(name, self.text(name, str(default)))

    def folders(self, name: str, default: Path) -> list[Path]:
        """Folders separated by colons, as in PATH."""
        return [_absolute(name, part) for part in self.text(name, str(default)).split(":") if part]

    def broker_url(self, name: str, default: str) -> str:
        url = self.readable_url(name, default)
        if urlsplit(url).scheme not in _BROKER_SCHEMES:
            raise ImproperlyConfigured(
                f"{name} is not understood: use redis://host:port/0, or redis+socket:///path?virtual_host=0."
            )
        return url

    def readable_url(self, name: str, default: str) -> str:
        url = self.text(name, default)
        if not is_readable(url):
            raise ImproperlyConfigured(f"{name} has no valid host and port: {IN_BRACKETS}.")
        return url

    def mail_url(self, name: str) -> str:
        """Return `mailto://` or `mailtos://user:password@host:port?from=address`, as Apprise takes it; "": none."""
        url = self.text(name, "")
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if url and (parts.scheme not in _MAIL_SCHEMES or not parts.hostname or "@" not in options.get("from", "")):
            raise ImproperlyConfigured(
                f"{name} is not understood: use mailtos://user:password@host:587?from=tidepool@example.org."
            )
        return url

    def optuna_url(self, name: str) -> str:
        """Return `sqlite:////path/file` or `postgresql://user:password@host/database`, as Optuna takes it; "": none."""
        url = self.text(name, "")
        if url and not re.match(r"(sqlite:////|postgresql(\+psycopg)?://)[^/]", url):
            raise ImproperlyConfigured(
                f"{name} is not understood: use postgresql://user:password@host/database or sqlite:////path/file."
            )
        return url

    def own_broker_url(self, name: str, default: str) -> str:
        """Return the URL of the broker that this process connects to: its certificate is checked."""
        ca_file = self.text("TIDEPOOL_BROKER_CA_FILE", "")
        if ca_file and not os.access(ca_file, os.R_OK):
            raise ImproperlyConfigured(
                f"TIDEPOOL_BROKER_CA_FILE names {ca_file}, which cannot be read: let this user read it."
            )
        return verified(
            self.broker_url(name, default), _absolute("TIDEPOOL_BROKER_CA_FILE", ca_file) if ca_file else None
        )

    def database(self, name: str, default_file: Path) -> dict[str, Any]:
        """Django's description of the database at this URL: `sqlite:///path` or `postgres://user:password@host/name`."""
        url = self.text(name, f"sqlite:///{default_file}")
        parts = urlsplit(url)
        if parts.scheme == "sqlite" and parts.path.startswith("/") and len(parts.path) > 1:
            return _sqlite(unquote(parts.path))
        if parts.scheme in {"postgres", "postgresql"} and len(parts.path) > 1:
            return {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": unquote(parts.path.removeprefix("/")),
                "USER": unquote(parts.username or ""),
                "PASSWORD": unquote(parts.password or ""),
                "HOST": unquote(parts.hostname or ""),
                "PORT": str(parts.port or ""),
                "CONN_HEALTH_CHECKS": True,
                "OPTIONS": {"connect_timeout": 5, **dict(parse_qsl(parts.query))},
            }
        raise ImproperlyConfigured(
            f"{name} is not understood: use postgres://user:password@host:5432/name, or sqlite:////absolute/file."
        )


def with_secrets(variables: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the variables, with each `NAME_FILE` among `names` replaced by `NAME`, whose value is the file's
    content."""
    found = dict(variables)
    for name in names:
        file, plain = found.pop(name, "").strip(), name.removesuffix("_FILE")
        if not file:
            continue
        if found.get(plain, "").strip():
            raise ImproperlyConfigured(f"{name} and {plain} are both set: keep the file.")
        found[plain] = _secret(name, Path(file))
    return found


def _secret(name: str, file: Path) -> str:
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ImproperlyConfigured(f"{name} cannot be read ({error}): let this user read the file.") from None
    if not secret:
        raise ImproperlyConfigured(f"{name} names {file}, which is empty: write the secret into it.")
    return secret


def embedded_broker_url(file: Path, socket: Path) -> str:
    """Return the broker of `manage.py up`, which keeps its address and password in `file` while it runs."""
    return file.read_text(encoding="utf-8").strip() if file.is_file() else f"redis+socket://{socket}?virtual_host=0"


def write_private(file: Path, text: str) -> None:
    """Replace the file by one that its owner alone may read."""
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    scratch.replace(file)


def certificate_file(home: Path) -> Path:
    """Return the certificate that `up --wmla-ports` makes, for clients."""
    return home / "tls" / "certificate.pem"


def secret_key(file: Path) -> str:
    """Return the key that signs sessions; made once, readable by its owner only."""
    try:
        return file.read_text(encoding="ascii").strip() or _new_secret_key(file)
    except FileNotFoundError:
        return _new_secret_key(file)
    except OSError as error:
        raise ImproperlyConfigured(f"{file} cannot be read ({error.strerror}): make this user its owner.") from error


def _new_secret_key(file: Path) -> str:
    key = secrets.token_urlsafe(48)
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(key)
        # Several processes may start at the same time: the first key wins.
        try:
            os.link(scratch, file)
        except FileExistsError:
            return file.read_text(encoding="ascii").strip()
        finally:
            scratch.unlink()
    except OSError as error:
        raise ImproperlyConfigured(
            f"The home {file.parent} is not writable ({error.strerror}): set TIDEPOOL_HOME to a folder that you own."
        ) from error
    return key


def _absolute(name: str, text: str) -> Path:
    path = Path(text).expanduser()
    if "\0" in text or not path.is_absolute():
        raise ImproperlyConfigured(f"{name} is {text!r}: give an absolute path.")
    return path


def _is_ipv6(word: str) -> bool:
    try:
        ipaddress.IPv6Address(word)
    except ValueError:
        return False
    return True


def _sqlite(file: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": file,
        "OPTIONS": {
            # Deferred transactions in WAL mode fail 3 of 4 concurrent writers; with IMMEDIATE they wait for each
            # other.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
        },
        # A file, so that tests meet the same locking as the product.
        "TEST": {"NAME": f"{file}.test"},
    }
