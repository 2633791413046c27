"""Turns at verifying passwords: each costs 0.4 s of a processor, and anybody may ask for one.

So few run at once, whoever asks; an address may have a few waiting, and after many wrong ones it must wait between
them. Right ones cost an address nothing. Of this process alone: a site has one that serves pages.
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


@dataclass
class Turns:
    #: How many may run at once; the other processors stay free for everybody else.
    running: int
    #: How many may wait or run: of all, and of one address.
    most: int = 32
    most_of_address: int = 8
    #: Wrong ones that an address has free, and how long it takes until it may have one more.
    failures: int = 30
    seconds_per_failure: float = 3.0
    patience_seconds: float = 15.0
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _here: Counter[str] = field(default_factory=Counter)
    #: Address -> until when its wrong ones count, as if each took its seconds after the other. Oldest first.
    _owed_until: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.running)

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Wait for a place. Raises TooMany at once where too many wait, or too many were wrong."""
        network = _network_of(address)
        self._enter(network)
        try:
            if not self._places.acquire(timeout=self.patience_seconds):
                raise TooMany("Too many people log in at this moment: try again.", retry_seconds=5)
            try:
                yield
            finally:
                self._places.release()
        finally:
            with self._lock:
                self._here[network] -= 1
                self._here += Counter()  # forgets those without any

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
                raise TooMany("Too many failed log-ins from this address: wait a moment.", retry_seconds=int(wait) + 1)
            if self._here[network] >= self.most_of_address or self._here.total() >= self.most:
                raise TooMany("Too many people log in at this moment: try again.", retry_seconds=1)
            self._here[network] += 1


def _network_of(address: str) -> str:
    """The address; of IPv6 the network, within which a machine may choose any."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return address
    return str(ipaddress.ip_network((address, 64), strict=False)) if version == 6 else address


verifying = Turns(running=max(1, (os.cpu_count() or 1) // 2))
