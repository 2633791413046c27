"""Watches where a thread connects to while it sends a message, whatever library does it.

The address is looked at as the kernel is given it, after the name was resolved: neither a redirect nor a name that
means another address the second time gets past it. docs/decisions/0021-alerts.md.
"""

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from alerts.addresses import is_allowed

__all__ = ["AddressRefused", "guarded"]

_threads = threading.local()


class AddressRefused(OSError):
    """The message's destination is not permitted. An OSError, so that libraries close their sockets."""


@dataclass
class _Guard:
    #: Networks that may be reached; None allows any.
    networks: Sequence[str] | None
    plain: bool
    #: Copies of the sockets that were connected, so that the message can be broken off.
    sockets: list[socket.socket] = field(default_factory=list)
    refused: str = ""
    is_over: bool = False

    def check(self, address: Any) -> None:
        if self.is_over:
            raise TimeoutError("it took too long")
        if self.refused:
            self._refuse(self.refused)
        try:
            number = ipaddress.ip_address(str(address[0]).partition("%")[0])
        except (ValueError, TypeError, IndexError):
            self._refuse("an address that is not numeric")
            return
        if self.networks is not None and not is_allowed(number, self.networks, plain=self.plain):
            self._refuse(str(number))

    def break_off(self) -> None:
        self.is_over = True
        for copy in list(self.sockets):
            with suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)

    def _refuse(self, what: str) -> None:
        self.refused = what
        raise AddressRefused(what)


@contextmanager
def guarded(networks: Sequence[str] | None, *, plain: bool, seconds: float) -> Iterator[None]:
    """Refuse connections of this thread but to public addresses and `networks` (None: any address is fine), and break
    off what takes longer than `seconds`. `plain`: without TLS, which is for `networks` alone.

    Raises AddressRefused, also where a library has swallowed it.
    """
    _watch_connections()
    guard = _Guard(networks, plain)
    _threads.guard = guard
    timer = threading.Timer(seconds, guard.break_off)
    timer.start()
    try:
        yield
    finally:
        _threads.guard = None
        timer.cancel()
        for copy in guard.sockets:
            copy.close()
        if guard.refused:
            raise AddressRefused(guard.refused) from None


@cache
def _watch_connections() -> None:
    """Once per process: such a hook stays for good."""
    sys.addaudithook(_look)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect":
        return
    guard: _Guard | None = getattr(_threads, "guard", None)
    if guard is None or arguments[0].family not in (socket.AF_INET, socket.AF_INET6):
        return
    guard.check(arguments[1])
    guard.sockets.append(socket.socket(fileno=os.dup(arguments[0].fileno())))
