"""Whether the address that was asked for can be served."""

from __future__ import annotations

import errno
import ipaddress
import socket

__all__ = ["AddressRefused", "check_address", "check_port", "site_url"]


_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


class AddressRefused(ValueError):
    """The sentence says what to change."""


def check_address(address: str, allowed_hosts: list[str]) -> None:
    """Refuse to serve other machines before somebody has said under which names."""
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise AddressRefused(f"--address {address} is not an IP address: give one of this machine's.") from None
    names = set(allowed_hosts) - _LOOPBACK_HOSTS
    if not loopback and (not names or "*" in names):
        raise AddressRefused(
            f"--address {address} can be reached from other machines: set TIDEPOOL_ALLOWED_HOSTS to the host names "
            "under which people open the site, and read docs/security.md first."
        )


def check_port(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the web server does: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise AddressRefused(_why(address, port, error)) from None


def site_url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _why(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use: stop the program that holds it, or choose another one with --port {port + 1}."
    if error.errno == errno.EACCES:
        return f"Port {port} needs root: choose one above 1023 with --port 8000."
    return f"{address}:{port} cannot be served ({error.strerror}): choose another --address or --port."
