"""The network interfaces of this machine, and which of them has its address in the cluster.

gloo looks for this machine's address by its name, which Debian leads to 127.0.1.1, and NCCL takes whichever interface
comes first: both are told the one that the host's own address is on.
"""

import errno
import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence

import psutil

__all__ = [
    "NO_PORT",
    "Interfaces",
    "connection_problem",
    "family_of",
    "interface_of",
    "interface_variables",
    "interfaces",
    "is_loopback",
    "listen_at",
    "resolve_host",
    "with_port_hint",
]

#: Advice on a machine whose ports are all in use, a sentence without its full stop.
NO_PORT = "no port of net.ipv4.ip_local_port_range is free on this machine: widen that range"
_IN_USE = os.strerror(errno.EADDRINUSE)
#: Addresses by the interface's name.
Interfaces = Mapping[str, Sequence[str]]


def interfaces() -> Interfaces:
    internet = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [address.address.partition("%")[0] for address in addresses if address.family in internet]
        for name, addresses in psutil.net_if_addrs().items()
    }


def interface_of(address: str, known: Interfaces) -> str | None:
    """Return the interface with that address, which may be a name; None where there is none."""
    for wanted in resolve_host(address):
        for name, addresses in known.items():
            if wanted in addresses or (is_loopback(wanted) and any(map(is_loopback, addresses))):
                return name
    return None


def interface_variables(address: str, known: Interfaces) -> dict[str, str]:
    """Return variables that tell gloo and NCCL to use the interface of `address`."""
    name = interface_of(address, known)
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"} if name else {}


def family_of(address: str) -> socket.AddressFamily:
    """Return the family of sockets for an address, which may be a name: IPv6 only where it has no other address."""
    found = resolve_host(address)
    return socket.AF_INET6 if found and all(":" in each for each in found) else socket.AF_INET


def listen_at(address: str, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens at a port of the kernel's choice. Raises OSError."""
    try:
        return socket.create_server((address, 0), family=family_of(address), backlog=backlog)
    except OSError as error:
        raise OSError(error.errno, with_port_hint(str(error))) from error


def with_port_hint(error: str) -> str:
    """Return the text of an error at binding port 0: what to do, if the machine has no port left."""
    return NO_PORT if _IN_USE in error else error


def connection_problem(error: Exception) -> str:
    """Return why this machine cannot connect to any other, as a failure shows; "": the other may be at fault."""
    return NO_PORT if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL else ""


def resolve_host(address: str) -> list[str]:
    """Return the IP addresses of a host's name, or the address itself. Empty: nobody knows the name."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(place[4][0]).partition("%")[0] for place in found))


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
