"""The handshake of a training's processes: each end of a connection proves that it knows the attempt's secret.

The caller begins with a purpose and a nonce, the listener answers with a nonce and a proof, and the caller with a proof
of its own: HMAC-SHA256 of side, purpose and both nonces. Whatever follows on the connection is neither signed nor
encrypted. Until a caller has proven itself, a listener reads 4 KiB of it in 5 s at most.
"""

import errno
import hmac
import logging
import secrets
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

__all__ = ["LIMIT_BYTES", "LIMIT_SECONDS", "Caller", "Gate", "HandshakeError", "Listener", "introduce"]

logger = logging.getLogger(__name__)

LIMIT_BYTES = 4096
LIMIT_SECONDS = 5.0
#: Callers without a proof that a gate keeps at once; for a further one, one of the busiest address has to go.
MOST_CALLERS = 128
#: Callers that a gate takes before it reads from those that it has.
_AT_ONCE = 32
#: Seconds between two lines of the log about callers that were refused.
_TOLD_SECONDS = 60.0
_GREETING = "tidepool-1"
_NONCE_DIGITS = 32
#: Length of the caller's last line.
_PROOF_BYTES = 65


class HandshakeError(ConnectionError):
    """The other end has not proven that it knows the secret."""


def _proof(secret: str, side: str, purpose: str, nonces: tuple[str, str]) -> str:
    words = "\n".join((_GREETING, side, purpose, *nonces))
    return hmac.digest(secret.encode(), words.encode(), "sha256").hex()


class _Line:
    """Collects the bytes of a line, after which nothing may come before it is answered."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._received = b""

    @property
    def wanted_bytes(self) -> int:
        """Most bytes that may still come."""
        return self._limit_bytes - len(self._received)

    def feed(self, received: bytes) -> str | None:
        """Return the line once it is complete. Raises HandshakeError if it never will be."""
        self._received += received
        line, end, rest = self._received.partition(b"\n")
        if rest or (not end and len(line) >= self._limit_bytes):
            raise HandshakeError("more than a line before the handshake is over")
        try:
            return line.decode("ascii") if end else None
        except UnicodeDecodeError:
            raise HandshakeError("a handshake that is no text") from None


class Caller:
    """The calling end: it sends `hello`, and then what `feed` returns."""

    def __init__(self, secret: str, purpose: str) -> None:
        self._secret, self._purpose = secret, purpose
        self._nonce = secrets.token_hex(_NONCE_DIGITS // 2)
        self._line = _Line()
        self.hello = f"{_GREETING} {purpose} {self._nonce}\n".encode()

    def feed(self, received: bytes) -> bytes | None:
        """Return the line that ends the handshake once the listener has proven itself; None: more has to come.

        Raises HandshakeError if the listener does not know the secret.
        """
        line = self._line.feed(received)
        if line is None:
            return None
        nonce, _, proof = line.partition(" ")
        nonces = self._nonce, nonce
        if not hmac.compare_digest(proof, _proof(self._secret, "listener", self._purpose, nonces)):
            raise HandshakeError("the listener does not know the training's secret")
        return f"{_proof(self._secret, 'caller', self._purpose, nonces)}\n".encode()


class Listener:
    """The listening end of one connection."""

    def __init__(self, secret: str, purposes: Collection[str]) -> None:
        self._secret, self._purposes = secret, purposes
        self._line = _Line()
        self._asked: tuple[str, tuple[str, str]] | None = None
        #: Purpose of the caller once it has proven itself; None before.
        self.admitted: str | None = None

    @property
    def wanted_bytes(self) -> int:
        """Most bytes to read now: what follows the proof is for whoever takes the connection."""
        return self._line.wanted_bytes

    def feed(self, received: bytes) -> bytes:
        """Return what is to be sent now. Raises HandshakeError if the caller is none of the training's."""
        line = self._line.feed(received)
        if line is None:
            return b""
        if self._asked is None:
            return self._answer(line)
        purpose, nonces = self._asked
        if not hmac.compare_digest(line, _proof(self._secret, "caller", purpose, nonces)):
            raise HandshakeError("a caller that does not know the training's secret")
        self.admitted = purpose
        return b""

    def _answer(self, line: str) -> bytes:
        greeting, purpose, theirs = [*line.split(" "), "", ""][:3]
        if greeting != _GREETING or purpose not in self._purposes or len(theirs) != _NONCE_DIGITS:
            raise HandshakeError("a caller that does not begin with a handshake")
        ours = secrets.token_hex(_NONCE_DIGITS // 2)
        self._asked = purpose, (theirs, ours)
        self._line = _Line(_PROOF_BYTES)
        return f"{ours} {_proof(self._secret, 'listener', purpose, (theirs, ours))}\n".encode()


def introduce(
    connection: socket.socket, secret: str, purpose: str, limit_seconds: float | None = LIMIT_SECONDS
) -> None:
    """Prove both ends of a connection that this process has opened, and leave its timeout as it was.

    An empty secret proves nothing. limit_seconds: None: as long as it takes. Raises OSError (HandshakeError) if the
    listener does not know the secret.
    """
    if not secret:
        return
    caller, before = Caller(secret, purpose), connection.gettimeout()
    deadline = None if limit_seconds is None else time.monotonic() + limit_seconds
    connection.settimeout(limit_seconds)
    connection.sendall(caller.hello)
    answer = None
    while answer is None:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        received = connection.recv(LIMIT_BYTES)
        if not received:
            raise HandshakeError("the listener has closed the connection during the handshake")
        answer = caller.feed(received)
    connection.sendall(answer)
    connection.settimeout(before)


@dataclass
class _Pending:
    connection: socket.socket
    address: str
    listener: Listener
    deadline: float


class Gate:
    """Callers of a listening TCP socket, until they have proven themselves. The selector's data are callbacks.

    admit: takes a connection without a timeout, and the caller's purpose. Without a secret, as of an attempt that began
    under an earlier release, callers are admitted at once, with the purpose "".
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: str,
        purposes: Collection[str],
        selector: selectors.BaseSelector,
        admit: Callable[[socket.socket, str], None],
    ) -> None:
        self._listener, self._secret, self._purposes = listener, secret, purposes
        self._selector, self._admit = selector, admit
        self._pending: dict[int, _Pending] = {}
        #: Number of callers that were refused.
        self.refused = 0
        self._told_at = float("-inf")
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def turn(self) -> None:
        """Close connections whose time is over. To be called about once a second, or more often."""
        now = time.monotonic()
        for pending in [pending for pending in self._pending.values() if pending.deadline <= now]:
            self._refuse(pending, "no handshake within the time for it")

    def close(self) -> None:
        """Close the connections of callers that have not proven themselves."""
        for pending in [*self._pending.values()]:
            self._forget(pending)
            pending.connection.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EINVAL:  # the listener was shut down
                    raise
                self._tell(f"a caller could not be taken: {error}")  # it has gone, or too many files are open
                return
            if not self._secret:
                self._admit(connection, "")
                continue
            connection.setblocking(False)
            self._make_room()
            listener = Listener(self._secret, self._purposes)
            pending = _Pending(connection, str(address[0]), listener, time.monotonic() + LIMIT_SECONDS)
            self._pending[connection.fileno()] = pending
            self._selector.register(connection, selectors.EVENT_READ, partial(self._read, pending))

    def _make_room(self) -> None:
        if len(self._pending) < MOST_CALLERS:
            return
        busiest, _ = Counter(pending.address for pending in self._pending.values()).most_common(1)[0]
        oldest = next(pending for pending in self._pending.values() if pending.address == busiest)
        self._refuse(oldest, f"more than {MOST_CALLERS} callers without a handshake")

    def _read(self, pending: _Pending) -> None:
        if self._pending.get(pending.connection.fileno()) is not pending:  # closed in this turn of the loop
            return
        try:
            received = pending.connection.recv(pending.listener.wanted_bytes)
            if not received:
                raise HandshakeError("a caller that has gone during the handshake")
            answer = pending.listener.feed(received)
            if answer:
                pending.connection.sendall(answer)
        except OSError as error:
            self._refuse(pending, str(error))
            return
        if pending.listener.admitted is not None:
            self._forget(pending)
            pending.connection.settimeout(None)
            self._admit(pending.connection, pending.listener.admitted)

    def _refuse(self, pending: _Pending, why: str) -> None:
        self.refused += 1
        self._forget(pending)
        pending.connection.close()
        self._tell(f"refused a caller from {pending.address}: {why} ({self.refused} refused so far)")

    def _tell(self, what: str) -> None:
        if time.monotonic() - self._told_at > _TOLD_SECONDS:
            self._told_at = time.monotonic()
            logger.warning("%s", what)

    def _forget(self, pending: _Pending) -> None:
        with suppress(KeyError):
            del self._pending[pending.connection.fileno()]
        self._selector.unregister(pending.connection)
