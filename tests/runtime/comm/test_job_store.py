"""A training's own store does what torch's does, for those who know the secret, as long as they are connected."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from tidepool.handshake import Gate, HandshakeError
from tidepool.protocol import StoreAnswer, StoreRequest
from tidepool.torch.comm.job_store import JobStore
from tidepool.torch.coordination.store_server import KeyValues, StoreServer
from torch.distributed import PrefixStore, Store, TCPStore

from tests.runtime.groups import SECONDS, together

SECRET = "the secret"
PATIENCE = timedelta(seconds=SECONDS)


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The place of a store that is served by a thread."""
    listener, selector = socket.create_server(("127.0.0.1", 0)), selectors.DefaultSelector()
    stores = StoreServer(selector)
    gate = Gate(listener, SECRET, ("store",), selector, lambda connection, _: stores.admit(connection))
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            for key, _ in selector.select(0.05):
                key.data()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        stopping.set()
        thread.join()
        gate.close()
        for key in list(selector.get_map().values()):
            if key.fileobj is not listener:
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
        listener.close()


@pytest.fixture(params=["torch's", "ours"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "torch's":
        yield TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False)
        return
    with served() as place:
        made = JobStore(*place, SECRET, PATIENCE)
        yield made
        made.close()


def test_it_does_what_torch_s_store_does(store: Store) -> None:
    store.set("a", "one")
    assert store.get("a") == b"one"
    assert store.check(["a"])
    assert not store.check(["a", "b"])
    assert [store.add("n", 5), store.add("n", -2)] == [5, 3]
    assert store.get("n") == b"3"
    assert store.compare_set("c", "", "first") == b"first"
    assert store.compare_set("c", "another", "second") == b"first"
    assert store.compare_set("c", "first", "second") == b"second"
    assert store.compare_set("missing", "expected", "wanted") == b"expected"
    store.append("l", "x")
    store.append("l", "y")
    assert store.get("l") == b"xy"
    store.multi_set(["p", "q"], ["1", "2"])
    assert store.multi_get(["q", "p"]) == [b"2", b"1"]
    assert store.delete_key("p")
    assert not store.delete_key("p")
    store.wait(["a", "q"])
    assert store.has_extended_api()
    with pytest.raises(RuntimeError):
        store.wait(["never"], timedelta(seconds=0.1))


def test_a_rank_waits_for_what_another_writes() -> None:
    with served() as place:
        one, other = (JobStore(*place, SECRET, PATIENCE) for _ in range(2))
        found = together(
            lambda: PrefixStore("1/2", one).multi_get(["a", "b"]),
            lambda: [PrefixStore("1/2", other).set(key, key.upper()) for key in "ab"],
        )
        assert found[0] == [b"A", b"B"]
        one.close()
        other.close()


def test_nobody_gets_in_without_the_secret() -> None:
    with served() as place:
        with pytest.raises(HandshakeError):
            JobStore(*place, "another", PATIENCE)
        with pytest.raises(HandshakeError):
            JobStore(*place, SECRET + "x", PATIENCE)


def test_a_store_without_its_coordinator_says_so() -> None:
    with served() as place:
        store = JobStore(*place, SECRET, PATIENCE)
    with pytest.raises(RuntimeError, match="does not answer to get"):
        store.get("a")


def test_a_request_that_makes_no_sense_is_answered_so() -> None:
    with served() as place:
        store = JobStore(*place, SECRET, PATIENCE)
        store.set("a", "word")
        with pytest.raises(RuntimeError, match="refuses a request"):
            store.add("a", 1)
        assert store.get("a") == b"word", "and it goes on"
        store.close()


def test_keys_go_with_the_connection_that_wrote_them_last() -> None:
    keys = KeyValues()
    keys.answer(1, StoreRequest("set", ["mine"], [b"1"]))
    keys.answer(2, StoreRequest("set", ["its"], [b"2"]))
    assert keys.answer(1, StoreRequest("get", ["later"])) == []
    keys.forget(1)
    assert keys.values == {"its": b"2"}
    assert keys.answer(2, StoreRequest("set", ["later"], [b"3"])) == [(2, StoreAnswer())], "nobody waits any more"


def test_a_clone_as_nccl_makes_one_when_it_shrinks_is_another_connection(store: Store) -> None:
    before = PrefixStore("a", store)
    clone = before.clone()
    clone.set("key", b"value")
    assert before.get("key") == b"value"
