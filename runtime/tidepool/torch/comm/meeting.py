"""How the members of a generation find each other: each tells in the attempt's store where it listens."""

import os
import secrets
import socket
import threading
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, NamedTuple

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store, TCPStore

from tidepool.json_sockets import tcp_sockets
from tidepool.network_interfaces import listen_at
from tidepool.torch.comm.job_store import JobStore

__all__ = ["BROADCASTS", "ROUTES", "Doors", "Place", "StorePlace", "exchange_places", "meet_at"]

#: End of the token of a member that hands state over along routes. For former releases a token is any text.
ROUTES = "-routes"
#: Part of the token of a member that takes part in broadcasts of the state.
BROADCASTS = "-broadcasts"
#: Serializes the opening of listening sockets, so that the socket of a gloo device can be identified.
_device_lock = threading.Lock()


class StorePlace(NamedTuple):
    """Where the members of a generation meet: an attempt's store, and the generation's part of its keys."""

    address: str
    port: int
    #: Secret of the attempt; "": a TCPStore listens there.
    secret: str
    prefix: str


class Place(NamedTuple):
    """A member's addresses and secret, published to the other members."""

    address: str
    #: The port where it takes state.
    taker: int
    #: The port where gloo listens.
    gloo: int
    device: str
    #: Secret of the members: a peer that hands over state sends it first. See `ROUTES`.
    token: str


class Doors:
    """The sockets at which a member listens for the others: for state, and gloo's."""

    def __init__(self, address: str, opened: ExitStack) -> None:
        """Raises RuntimeError, OSError. opened: closes the sockets, unless it is emptied first."""
        with _device_lock:
            self.state = opened.enter_context(listen_at(address))
        #: A device of gloo's, and a duplicate of the socket on which it listens.
        self.device, self.gloo = _listening_device(address)
        opened.callback(self.gloo.close)

    def words(self, device: str, *, broadcasts: bool) -> str:
        """Return this member's place as it is published. device: name of the device of its model.

        broadcasts: whether it takes part in broadcasts of the state.
        """
        address, taker = self.state.getsockname()[:2]  # the address as sockets tell it, should a name have been given
        token = f"{secrets.token_hex(16)}{BROADCASTS if broadcasts else ''}{ROUTES}"
        return f"{address} {taker} {self.gloo.getsockname()[1]} {device} {token}"


def meet_at(place: StorePlace, timeout: timedelta, opened: ExitStack) -> tuple[Store, JobStore | None]:
    """Return the generation's store, and the connection that keeps it open, if one does."""
    if not place.secret:
        return PrefixStore(place.prefix, TCPStore(place.address, place.port, None, False, timeout)), None
    connection = JobStore(place.address, place.port, place.secret, timeout)
    opened.callback(connection.close)
    return PrefixStore(place.prefix, connection), connection


def exchange_places(store: Store, rank: int, size: int, own: str) -> list[Place]:
    """Publish this member's place, and wait for those of all members, in the order of their ranks."""
    store.set(f"place/{rank}", own)
    return [_place(value) for value in store.multi_get([f"place/{other}" for other in range(size)])]


def _place(value: bytes) -> Place:
    address, taker, gloo, device, token = value.decode().split()
    return Place(address, int(taker), int(gloo), device, token)


def _listening_device(address: str) -> tuple[Any, socket.socket]:
    """Return a device of gloo's, and a duplicate of the socket on which it listens."""
    with _device_lock:
        before = _listening_ports()
        # Not lazily: a formed group has all of its connections.
        device = ProcessGroupGloo.create_device(hostname=address, lazy_init=False)
        new = {port: number for port, number in _listening_ports().items() if port not in before}
        if len(new) != 1:
            raise RuntimeError(f"gloo opened {len(new)} listening sockets where one was expected")
        return device, socket.socket(fileno=os.dup(*new.values()))


def _listening_ports() -> dict[int, int]:
    """Return the ports on which this process listens, each with a descriptor."""
    return {
        one.getsockname()[1]: number
        for number, one in tcp_sockets()
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    }
