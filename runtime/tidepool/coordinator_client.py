"""Connections to a job's coordinator: a rank's, in a thread of its own, and a shim's, which never blocks.

The coordinator may be on another host, and may be replaced at any time: `coordinator.json` in the job's folder has its
address. A lost coordinator is waited for without limit, until it returns or the waiting process is ended.
"""

import errno
import json
import logging
import os
import selectors
import socket
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from tidepool.backoff import Backoff
from tidepool.env import RankContext
from tidepool.handshake import LIMIT_SECONDS, Caller, HandshakeError, introduce
from tidepool.json_sockets import Lines, connect_tcp, is_connected_to_itself, send_line, set_tcp_options
from tidepool.network_interfaces import connection_problem, family_of
from tidepool.procfs import end_at_once
from tidepool.protocol import (
    CoordinatorMessage,
    Join,
    MemberMessage,
    ProtocolError,
    ShimCommand,
    ShimJoin,
    decode,
    encode,
)

__all__ = ["RankConnection", "ShimConnection"]

logger = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.05
#: Seconds for a connection. A host that is cut off answers never; its successor's address is looked up after each try,
#: and waits 10 s for the ranks.
_CONNECT_SECONDS = 2.0


class UnknownSecretError(RuntimeError):
    """This process is not one that a shim has started."""


class RankConnection(ABC):
    """A rank's connection. An error in one of its threads ends the rank, because a disconnected rank cannot be
    fenced."""

    #: Kinds of messages whose newest one is repeated to the next coordinator.
    REPEATED: ClassVar[frozenset[str]]

    def __init__(self, context: RankContext) -> None:
        self._context = context
        #: Guards the state that messages change; notified with each message.
        self.changed = threading.Condition()
        #: Messages to repeat after a reconnection, by kind, in the order in which the kinds were first sent.
        self._repeated: dict[str, MemberMessage] = {}
        #: Number of the newest lead that it has heard of; see `tidepool.fence`.
        self.lead_number = 0
        self._connection: socket.socket | None = None
        self._closed = False
        #: The problem that was last written to the log.
        self._said = ""
        self._send_lock = threading.Lock()

    def send(self, message: MemberMessage) -> None:
        """Send to the coordinator, if connected. Messages that must not be lost are repeated after a reconnection."""
        with self._send_lock:
            if message.kind in self.REPEATED:
                self._repeated[message.kind] = message
            if self._connection is not None:
                self._send(encode(message))

    def close(self) -> None:
        with self._send_lock:
            self._closed = True
            if self._connection is not None:
                with suppress(OSError):  # the other end closed first
                    self._connection.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def _apply(self, message: CoordinatorMessage) -> None:
        """Act on a message, while `changed` is held."""

    def _farewell(self, ended: str | None) -> CoordinatorMessage | None:
        """Return the message for a coordinator that has ended. `ended`: the attempt's result; None: the attempt
        continues."""
        return None

    def _join(self) -> Join:
        context = self._context
        return Join(
            job=context.job,
            attempt=context.attempt,
            member_id=context.member_id,
            host=context.host,
            slot=context.slot,
            pid=os.getpid(),
            generation=0,
            ready=False,
            target_revision=context.target_revision,
            lead_number=self.lead_number,
        )

    def _start(self, work: Callable[[], None], name: str) -> None:
        """Run `work` in a thread, whose failure is the rank's end."""

        def run() -> None:
            try:
                work()
            except BaseException:
                traceback.print_exc()
                end_at_once("its control thread failed")

        threading.Thread(target=run, name=name, daemon=True).start()

    def _listen(self) -> None:
        """Do the thread's work until `close`."""
        while not self._closed:
            try:
                connection = self._connect()
            except (OSError, ValueError) as error:  # not started, being replaced, or lost: wait for it
                self._say(connection_problem(error))
                time.sleep(_RECONNECT_SECONDS)
                continue
            with connection:
                self._introduce(connection)
                for line in _lines(connection):
                    self._receive(decode(CoordinatorMessage, line))
                with self._send_lock:
                    self._connection = None

    def _say(self, problem: str) -> None:
        """Write a problem to this rank's log, once; "": none."""
        if problem and problem != self._said:
            self._said = problem
            print(f"tidepool: rank cannot reach its coordinator, and waits: {problem}", file=sys.stderr, flush=True)  # noqa: T201

    def _connect(self) -> socket.socket:
        place = _place(self._context.folder)
        if (message := self._farewell(place.get("ended"))) is not None:
            self._receive(msgspec.structs.replace(message, lead_number=self.lead_number))
        if place.get("handshake") and not self._context.secret:
            raise UnknownSecretError(
                "this process does not know its training's secret: create the session in the process that Tidepool has "
                "started, not in one that this has started"
            )
        connection = connect_tcp((place["address"], place["port"]), _CONNECT_SECONDS)
        try:
            introduce(connection, self._context.secret, "coordinator")
        except OSError:
            connection.close()
            raise
        connection.settimeout(None)
        set_tcp_options(connection)
        return connection

    def _introduce(self, connection: socket.socket) -> None:
        """Use `connection` from now on; first send the join message and the messages to repeat."""
        with self._send_lock:
            if self._closed:
                connection.close()
                return
            self._connection = connection
            self._send(b"".join(map(encode, [self._join(), *self._repeated.values()])))

    def _send(self, line: bytes) -> None:
        """Send a line; the caller holds `_send_lock`."""
        assert self._connection is not None
        try:
            self._connection.sendall(line)
        except OSError:  # the reader sees the same and reconnects
            self._connection = None

    def _receive(self, message: CoordinatorMessage) -> None:
        with self.changed:
            if message.lead_number < self.lead_number:  # the sender is superseded
                return
            self.lead_number = message.lead_number
            self._apply(message)
            self.changed.notify_all()


class ShimConnection:
    """A shim's connection, by which the coordinator has it kill ranks that no longer respond.

    The shim's loop calls `turn`; its selector calls the other methods.
    """

    def __init__(
        self,
        folder: Path,
        selector: selectors.BaseSelector,
        join: Callable[[], ShimJoin],
        on_command: Callable[[ShimCommand], None],
        secret: str,
    ) -> None:
        self._folder, self._secret = folder, secret
        self._selector = selector
        self._join, self._on_command = join, on_command
        self._socket: socket.socket | None = None
        self._connected = False
        #: The handshake under way.
        self._caller: Caller | None = None
        self._lines = Lines()
        self._backoff = Backoff(first_seconds=0.1, longest_seconds=2.0)
        #: Monotonic time of the next attempt, or of the timeout of the present one; None: connected.
        self.next_attempt_at: float | None = time.monotonic()

    def turn(self) -> None:
        if self.next_attempt_at is None or self.next_attempt_at > time.monotonic():
            return
        self._drop()
        self._connect()

    def send_join(self) -> None:
        """Send the join message, again whenever its content has changed."""
        if self._socket is not None and self._connected and not send_line(self._socket, encode(self._join())):
            self._drop()

    def _connect(self) -> None:
        self._backoff.add(time.monotonic())
        self.next_attempt_at = self._backoff.until
        try:
            place = _place(self._folder)
            address = str(place["address"]), int(place["port"])
        except (OSError, ValueError, KeyError, TypeError):  # not started yet, or being replaced
            return
        if place.get("ended"):
            return
        self._socket = socket.socket(family_of(address[0]), socket.SOCK_STREAM)
        self._socket.setblocking(False)
        if self._socket.connect_ex(address) in (0, errno.EINPROGRESS):
            self.next_attempt_at = time.monotonic() + _CONNECT_SECONDS
            self._selector.register(self._socket, selectors.EVENT_WRITE, self._begin)
        else:
            self._socket.close()
            self._socket = None

    def _begin(self) -> None:
        """Handle the end of the attempt."""
        if self._socket is None:
            return
        failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed or is_connected_to_itself(self._socket):
            logger.debug("no coordinator: %s", os.strerror(failed))
            self._drop()
            return
        set_tcp_options(self._socket)
        if not self._secret:
            self._be_connected()
            return
        self._caller = Caller(self._secret, "coordinator")
        self._selector.modify(self._socket, selectors.EVENT_READ, self._shake_hands)
        self.next_attempt_at = time.monotonic() + LIMIT_SECONDS
        if not send_line(self._socket, self._caller.hello):
            self._drop()

    def _shake_hands(self) -> None:
        if self._socket is None or self._caller is None:
            return
        try:
            received = self._socket.recv(65536)
            if not received:
                raise HandshakeError("the coordinator has closed the connection during the handshake")
            answer = self._caller.feed(received)
        except OSError as error:
            logger.debug("no coordinator: %s", error)
            self._drop()
            return
        if answer is not None and send_line(self._socket, answer):
            self._be_connected()
        elif answer is not None:
            self._drop()

    def _be_connected(self) -> None:
        assert self._socket is not None
        self._selector.modify(self._socket, selectors.EVENT_READ, self._read)
        self._connected, self._lines = True, Lines()
        self.next_attempt_at = None
        self._backoff.reset()
        self.send_join()

    def _read(self) -> None:
        if self._socket is None:
            return
        lines = self._lines.receive(self._socket)
        if lines is None:
            self._drop()
        for line in lines or []:
            try:
                self._on_command(decode(ShimCommand, line))
            except ProtocolError as error:
                logger.warning("dropped a coordinator's line: %s", error)

    def _drop(self) -> None:
        if self._socket is None:
            return
        self._selector.unregister(self._socket)
        self._socket.close()
        self._socket, self._connected, self._caller = None, False, None
        self.next_attempt_at = time.monotonic() + (self._backoff.pause_seconds or self._backoff.first_seconds)


def _place(folder: Path) -> dict[str, Any]:
    place: dict[str, Any] = json.loads((folder / "coordinator.json").read_text())
    return place


def _lines(connection: socket.socket) -> Iterator[bytes]:
    """Yield complete lines until the connection ends in any way."""
    try:
        yield from connection.makefile("rb")
    except OSError:
        return
