"""Ports that the site answers on, and checks whether an address can be served."""

import errno
import ipaddress
import socket
from argparse import ArgumentTypeError
from dataclasses import dataclass, replace

from django.core.management import CommandError

__all__ = [
    "WMLA_PORTS",
    "Listener",
    "check_address",
    "check_port",
    "check_ports",
    "parse_listener",
    "parse_listeners",
    "site_url",
]

#: Ports that WMLA's clients are written for: Conductor's and the deep-learning service's, by TLS and in the clear.
WMLA_PORTS = "https:8643,http:8280,https:9243,http:9280"
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


def check_address(address: str, allowed_hosts: list[str]) -> None:
    """Raise CommandError if other machines could connect before the allowed host names are configured."""
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise CommandError(f"--address {address} is not an IP address: give one of this machine's.") from None
    names = set(allowed_hosts) - _LOOPBACK_HOSTS
    if not loopback and (not names or "*" in names):
        raise CommandError(
            f"--address {address} can be reached from other machines: set TIDEPOOL_ALLOWED_HOSTS to the host names "
            "under which people open the site, and read docs/security.md first."
        )


@dataclass(frozen=True)
class Listener:
    """A port that the site answers on."""

    is_tls: bool
    port: int

    def __str__(self) -> str:
        return f"{self._scheme}:{self.port}"

    def url(self, address: str) -> str:
        return site_url(address, self.port, self._scheme)

    @property
    def _scheme(self) -> str:
        return "https" if self.is_tls else "http"


def parse_listener(text: str) -> Listener:
    """Return the listener that a text such as `https:8643` describes."""
    scheme, _, number = text.strip().partition(":")
    is_port = number.isascii() and number.isdecimal() and len(number) <= 5 and 1 <= int(number) <= 65535
    if scheme not in ("http", "https") or not is_port:
        raise ArgumentTypeError(f"{text!r} is not a port: write http:8280 or https:8643, with commas between several")
    return Listener(scheme == "https", int(number))


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Parse several, such as `WMLA_PORTS`."""
    listeners = tuple(parse_listener(part) for part in text.split(","))
    if len({listener.port for listener in listeners}) < len(listeners):
        raise ArgumentTypeError(f"{text!r} names a port twice")
    return listeners


def check_ports(address: str, listeners: tuple[Listener, ...]) -> None:
    others = ",".join(str(replace(one, port=10000 + one.port % 10000)) for one in listeners)
    for listener in listeners:
        check_port(address, listener.port, choice=f"--wmla-ports {others}")


def check_port(address: str, port: int, choice: str = "") -> None:
    """Raise CommandError if the port is taken. `choice` is the option that sets another port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # The option is the web server's own: with it a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise CommandError(_why(address, port, error, choice)) from None


def site_url(address: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def _why(address: str, port: int, error: OSError, choice: str) -> str:
    if error.errno == errno.EADDRINUSE:
        another = choice or f"--port {port + 1}"
        return f"Port {port} is in use: stop the program that holds it, or choose another one with {another}."
    if error.errno == errno.EACCES:
        return f"Port {port} needs root: choose one above 1023 with {choice or '--port 8000'}."
    return f"{address}:{port} cannot be served ({error.strerror}): choose another --address or --port."
