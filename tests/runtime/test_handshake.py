"""The handshake of a training's processes, and a gate before which nobody but them gets anywhere."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from tidepool import handshake
from tidepool.handshake import LIMIT_BYTES, Caller, Gate, HandshakeError, Listener, introduce
from tidepool.socket_filters import refuse_callers, refuse_other_machines

from tests.missing import leave_out
from tests.runtime.strangers import crowd
from tests.waiting import wait_until

SECRET = "s" * 64


def meet(caller: Caller, listener: Listener) -> bytes:
    """Let both ends speak until the listener has decided; return the caller's proof."""
    answer = caller.feed(listener.feed(caller.hello))
    assert answer is not None
    listener.feed(answer)
    return answer


def test_both_ends_prove_that_they_know_the_secret() -> None:
    listener = Listener(SECRET, ("store", "coordinator"))
    meet(Caller(SECRET, "store"), listener)
    assert listener.admitted == "store"


def test_bytes_may_come_one_by_one() -> None:
    caller, listener = Caller(SECRET, "store"), Listener(SECRET, ("store",))
    answer = b"".join(listener.feed(bytes([each])) for each in caller.hello)
    proofs = [caller.feed(bytes([each])) for each in answer]
    assert proofs[:-1] == [None] * (len(answer) - 1)
    for each in proofs[-1] or b"":
        assert listener.admitted is None
        listener.feed(bytes([each]))
    assert listener.admitted == "store"


def test_a_caller_with_another_secret_is_refused() -> None:
    listener = Listener(SECRET, ("store",))
    stranger = Caller("another", "store")
    answer = listener.feed(stranger.hello)
    with pytest.raises(HandshakeError, match="does not know"):
        stranger.feed(answer)
    proof = Caller("another", "store")
    forged = proof.feed(Listener("another", ("store",)).feed(proof.hello))
    assert forged is not None
    with pytest.raises(HandshakeError, match="does not know"):
        listener.feed(forged)
    assert listener.admitted is None


def test_a_listener_with_another_secret_is_no_listener() -> None:
    caller = Caller(SECRET, "store")
    with pytest.raises(HandshakeError, match="listener does not know"):
        caller.feed(Listener("another", ("store",)).feed(caller.hello))


def test_what_was_said_before_proves_nothing_again() -> None:
    caller = Caller(SECRET, "store")
    heard = meet(caller, Listener(SECRET, ("store",)))
    again = Listener(SECRET, ("store",))
    again.feed(caller.hello)
    with pytest.raises(HandshakeError):
        again.feed(heard)


def test_a_listener_s_own_proof_sent_back_proves_nothing() -> None:
    listener = Listener(SECRET, ("store",))
    _, _, proof = listener.feed(Caller(SECRET, "store").hello).partition(b" ")
    with pytest.raises(HandshakeError):
        listener.feed(proof)


def test_a_proof_for_another_purpose_is_none() -> None:
    listener = Listener(SECRET, ("store",))
    with pytest.raises(HandshakeError, match="does not begin with a handshake"):
        listener.feed(Caller(SECRET, "coordinator").hello)


@pytest.mark.parametrize(
    "said",
    [
        b'{"job": 1, "attempt": 1, "retire": true, "version": 1}\n',
        b"tidepool-1 store short\n",
        b"tidepool-1 store\n",
        b"\n",
        "tidepool-1 store äääääääääääääääääääääääääääääääää\n".encode(),
        b"x" * LIMIT_BYTES,
        Caller(SECRET, "store").hello + b"more",
    ],
    ids=["a message", "too short", "no nonce", "nothing", "not hexadecimal", "too long", "more than a greeting"],
)
def test_whatever_else_comes_first_is_refused(said: bytes) -> None:
    with pytest.raises(HandshakeError):
        Listener(SECRET, ("store",)).feed(said)


# --- the gate --------------------------------------------------------------------------------------------------------


class Door:
    """A gate on a port, in a thread."""

    def __init__(self, secret: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.place: tuple[str, int] = self.listener.getsockname()
        self.admitted: list[tuple[socket.socket, str]] = []
        self._selector = selectors.DefaultSelector()
        self.gate = Gate(self.listener, secret, ("store",), self._selector, self._admit)
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _admit(self, connection: socket.socket, purpose: str) -> None:
        self.admitted.append((connection, purpose))

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(0.05):
                key.data()
            self.gate.turn()

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        self.gate.close()
        self.listener.close()
        for connection, _ in self.admitted:
            connection.close()


@contextmanager
def door(secret: str = SECRET) -> Iterator[Door]:
    made = Door(secret)
    try:
        yield made
    finally:
        made.close()


def test_the_gate_leaves_what_follows_the_proof_to_whoever_takes_the_connection() -> None:
    with door() as made, socket.create_connection(made.place) as caller:
        introduce(caller, SECRET, "store")
        caller.sendall(b"the first line\n")
        wait_until(lambda: made.admitted, "the caller")
        connection, purpose = made.admitted[0]
        assert purpose == "store"
        assert connection.gettimeout() is None
        assert connection.recv(100) == b"the first line\n"


def test_the_gate_closes_on_strangers_and_counts_them() -> None:
    with door() as made:
        with socket.create_connection(made.place) as caller:
            caller.settimeout(60.0)
            caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert caller.recv(100) == b""
        with socket.create_connection(made.place) as caller, pytest.raises(HandshakeError):
            introduce(caller, "another", "store")
        wait_until(lambda: made.gate.refused == 2, "both refusals")
        assert not made.admitted


def test_the_gate_closes_on_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "LIMIT_SECONDS", 0.2)
    with door() as made, socket.create_connection(made.place) as caller:
        caller.settimeout(60.0)
        assert caller.recv(100) == b""


def test_many_silent_callers_keep_nobody_out_and_few_of_them_are_kept() -> None:
    with door() as made:
        silent = crowd(*made.place, 1000)
        try:
            with socket.create_connection(made.place) as caller:
                introduce(caller, SECRET, "store")
                wait_until(lambda: made.admitted, "the caller")
            assert len(made.gate._pending) <= handshake.MOST_CALLERS
        finally:
            for connection in silent:
                connection.close()


def test_without_a_secret_everybody_is_admitted_as_before() -> None:
    with door("") as made, socket.create_connection(made.place) as caller:
        introduce(caller, "", "store")
        wait_until(lambda: made.admitted, "the caller")
        assert made.admitted[0][1] == ""


def test_a_caller_is_told_when_the_listener_goes_away() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(OSError, match=r"closed|Broken pipe"):
            introduce(ours, SECRET, "store")


def test_a_filter_keeps_callers_out_and_connections_going() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as before:
            accepted, _ = listener.accept()
            with accepted:
                if not refuse_callers(listener):
                    leave_out("this kernel lets none but privileged processes filter")
                before.sendall(b"still here")
                assert accepted.recv(100) == b"still here"
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname(), 0.3)


def test_a_filter_lets_this_machine_in() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refuse_other_machines(listener)  # where it may: see above
        with socket.create_connection(listener.getsockname(), 10.0) as caller:
            caller.sendall(b"hello")
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(100) == b"hello"


def test_a_process_that_may_not_filter_goes_on() -> None:
    class Closed:
        def setsockopt(self, *_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

    assert refuse_callers(cast(socket.socket, Closed())) is False
