"""Limits on verifying passwords: a verification costs 0.4 s of processor time, and anybody may request one.

Only a few run at once. An address may have a few requests waiting, and after many wrong passwords it must wait between
them; right passwords cost it nothing. The limits hold for this process alone: a site has one web process.
"""

import ipaddress
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from core.errors import TooMany

__all__ = ["Turns", "verifying"]

_MOST_ADDRESSES = 10_000
_CROWDED = "Too many people log in at this moment: try again."


@dataclass
class Turns:
    #: Number of verifications that run at once; the other processors stay free.
    running: int
    #: Number of verifications that wait or run: in total, and per address.
    most: int = 32
    most_of_address: int = 8
    #: Wrong passwords of an address before it must wait, and the seconds to wait for each further one.
    failures: int = 30
    seconds_per_failure: float = 3.0
    patience_seconds: float = 15.0
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _here: Counter[str] = field(default_factory=Counter)
    #: Address -> time until which its wrong passwords count, each for `seconds_per_failure`. Oldest first.
    _owed_until: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.running)

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Wait for a place. Raises TooMany at once if too many requests wait, or too many passwords were wrong."""
        network = _network_of(address)
        self._enter(network)
        try:
            if not self._places.acquire(timeout=self.patience_seconds):
                raise TooMany(_CROWDED, retry_seconds=5)
            try:
                yield
            finally:
                self._places.release()
        finally:
            with self._lock:
                self._here[network] -= 1
                self._here += Counter()  # drops addresses with a count of 0

    def count_failure(self, address: str) -> None:
        network, now = _network_of(address), self.clock()
        with self._lock:
            owed = max(now, self._owed_until.pop(network, now)) + self.seconds_per_failure
            self._owed_until[network] = owed
            if len(self._owed_until) > _MOST_ADDRESSES:
                self._owed_until.popitem(last=False)

    def forget(self) -> None:
        """Forget all failures, as a start of the process does."""
        with self._lock:
            self._owed_until.clear()

    def _enter(self, network: str) -> None:
        with self._lock:
            wait = self._owed_until.get(network, 0.0) - self.clock() - self.failures * self.seconds_per_failure
            if wait >= 0:
                raise TooMany("Too many failed logins from this address: try again later.", retry_seconds=int(wait) + 1)
            if self._here[network] >= self.most_of_address or self._here.total() >= self.most:
                raise TooMany(_CROWDED, retry_seconds=1)
            self._here[network] += 1


def _network_of(address: str) -> str:
    """Return the address; for IPv6, the /64 network, inside which a machine can choose any address."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return address
    return str(ipaddress.ip_network((address, 64), strict=False)) if version == 6 else address


verifying = Turns(running=max(1, (os.cpu_count() or 1) // 2))
