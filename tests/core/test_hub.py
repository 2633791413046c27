"""The hub: what a client knows plus its frames is what is so, whatever is lost, doubled, late or coalesced."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from core import hub as hub_module
from core.hub import APPEND_ITEMS, HISTORY_EVENTS, Client, Hub, frames
from core.live import Event, merge
from tests.waiting import PATIENCE_SECONDS
from workers.topics import CLUSTER


class Numbers:
    """Stands for the database: the newest number of each topic."""

    def __init__(self) -> None:
        self.newest: dict[str, int] = {}

    async def __call__(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.newest.get(topic, 0) for topic in topics}


@asynccontextmanager
async def silence() -> AsyncIterator[AsyncIterator[bytes]]:
    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    yield nothing()


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


@pytest.fixture
async def hub(numbers: Numbers) -> AsyncIterator[Hub]:
    hub = Hub(numbers, silence)
    yield hub
    await hub.stop()


async def soon(awaitable: Awaitable[str]) -> dict[str, Any]:
    return json.loads(await asyncio.wait_for(awaitable, PATIENCE_SECONDS))


def state(seq: int, topic: str = "job.1", **data: Any) -> Event:
    return Event(topic, seq, "state", data)


def test_events_that_come_before_a_flush_is_done_are_in_it_on_uvicorns_loop_too(numbers: Numbers) -> None:
    """uvloop's handle of what is due at once has no `when`."""

    async def watch() -> dict[str, Any]:
        hub, client = Hub(numbers, silence), Client()
        await hub.subscribe(client, CLUSTER, 0)
        for seq in (1, 2, 3):
            hub.receive(state(seq, CLUSTER, slots={f"host:{seq}": {"job": seq}}))
        return await soon(client.next_frame())

    frame = uvloop.run(watch())

    assert (frame["from_seq"], frame["seq"]) == (0, 3)


async def test_pages_that_come_at_once_share_the_questions_to_the_database(numbers: Numbers) -> None:
    """Share the next question with a client that comes while one is asked; one that goes takes nothing away."""
    asked: list[list[str]] = []
    begun, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(topics: Iterable[str]) -> dict[str, int]:
        asked.append(list(topics))
        begun.set()
        await may_answer.wait()
        return await numbers(topics)

    hub, clients = Hub(slow, silence), [Client() for _ in range(40)]
    first = [
        asyncio.create_task(hub.subscribe(client, name, 0)) for client in clients[:20] for name in ("job.1", CLUSTER)
    ]
    await begun.wait()
    later = [asyncio.create_task(hub.subscribe(client, "job.1", 0)) for client in clients[20:]]
    first.pop().cancel()
    may_answer.set()
    await asyncio.gather(*first, *later)

    assert asked == [[CLUSTER, "job.1"], ["job.1"]]
    await hub.stop()


async def test_a_fault_in_what_listens_does_not_end_listening(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def one_event() -> AsyncIterator[AsyncIterator[bytes]]:
        async def events() -> AsyncIterator[bytes]:
            yield json.dumps({"topic": "job.1", "seq": 1, "kind": "state", "data": {}}).encode()

        yield events()

    def fail(event: Event) -> None:
        monkeypatch.setattr(hub, "receive", lambda event: heard.set())
        raise AttributeError("a fault of ours")

    hub, heard = Hub(numbers, one_event), asyncio.Event()
    monkeypatch.setattr(hub_module, "RECONNECT_SECONDS", 0)
    monkeypatch.setattr(hub, "receive", fail)
    hub.start()

    await asyncio.wait_for(heard.wait(), PATIENCE_SECONDS)
    await hub.stop()

    assert "a fault of ours" in caplog.text


async def test_sends_the_first_event_at_once_and_joins_what_follows(hub: Hub) -> None:
    client, loop = Client(), asyncio.get_running_loop()
    await hub.subscribe(client, "job.1", 0)
    started = loop.time()

    for seq in (1, 2, 3):
        hub.receive(state(seq, step=seq))
        if seq == 1:
            first = await soon(client.next_frame())
            assert loop.time() - started < hub_module.FLUSH_SECONDS / 2
    second = await soon(client.next_frame())

    assert (first["from_seq"], first["seq"], first["data"]) == (0, 1, {"step": 1})
    assert (second["from_seq"], second["seq"], second["data"]) == (1, 3, {"step": 3})
    assert loop.time() - started >= hub_module.FLUSH_SECONDS * 0.9


async def test_gpus_that_change_hands_do_not_wait_for_the_progress_of_others(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "FLUSH_SECONDS", 10 * PATIENCE_SECONDS)
    client = Client()
    await hub.subscribe(client, CLUSTER, 0)
    hub.receive(state(1, CLUSTER, jobs={"1": {"progress": 0.1}}))
    await soon(client.next_frame())

    hub.receive(state(2, CLUSTER, jobs={"1": {"progress": 0.2}}))
    hub.receive(Event(CLUSTER, 3, "append", {"allocation": [{"job": 1}]}))

    assert (await soon(client.next_frame()))["data"] == {"jobs": {"1": {"progress": 0.2}}}
    assert (await soon(client.next_frame()))["data"] == {"allocation": [{"job": 1}]}


async def test_puts_events_that_came_in_another_order_in_order(hub: Hub) -> None:
    client = Client()
    await hub.subscribe(client, "job.1", 0)

    for seq in (2, 3, 1, 2):
        hub.receive(state(seq, step=seq))

    frame = await soon(client.next_frame())
    assert (frame["from_seq"], frame["seq"], frame["data"]) == (0, 3, {"step": 3})


async def test_a_page_that_is_too_old_is_told_to_fetch(hub: Hub, numbers: Numbers) -> None:
    numbers.newest["job.1"] = 9
    client = Client()

    await hub.subscribe(client, "job.1", 4)

    frame = await soon(client.next_frame())
    assert (frame["kind"], frame["from_seq"], frame["seq"]) == ("reset", 4, 9)


async def test_a_page_of_another_database_is_told_to_fetch(hub: Hub, numbers: Numbers) -> None:
    numbers.newest["job.1"] = 2
    client = Client()

    await hub.subscribe(client, "job.1", 50)

    assert (await soon(client.next_frame()))["kind"] == "reset"
    hub.receive(state(3, step=3))
    assert (await soon(client.next_frame()))["data"] == {"step": 3}


async def test_goes_on_with_the_smaller_numbers_of_a_database_that_was_restored(hub: Hub, numbers: Numbers) -> None:
    numbers.newest["job.1"] = 37
    early, late = Client(), Client()
    await hub.subscribe(early, "job.1", 37)
    numbers.newest["job.1"] = 2

    await hub.subscribe(late, "job.1", 2)
    hub.receive(state(3, step=3))

    assert (await soon(early.next_frame()))["kind"] == "reset"
    for client in (early, late):
        assert (await soon(client.next_frame()))["data"] == {"step": 3}


async def test_a_newcomer_gets_what_happened_since_its_page_was_made(hub: Hub, numbers: Numbers) -> None:
    early, late = Client(), Client()
    await hub.subscribe(early, "job.1", 0)
    for seq in (1, 2, 3):
        hub.receive(state(seq, **{f"field{seq}": seq}))
    numbers.newest["job.1"] = 3

    await hub.subscribe(late, "job.1", 1)

    assert (await soon(late.next_frame()))["data"] == {"field2": 2, "field3": 3}


async def test_events_whose_publication_failed_are_found_and_fetched(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "AUDIT_SECONDS", 0.01)
    hub, client = Hub(numbers, silence), Client()
    hub.start()
    try:
        await hub.subscribe(client, "job.1", 0)
        numbers.newest["job.1"] = 2

        frame = await soon(client.next_frame())
    finally:
        await hub.stop()

    assert (frame["kind"], frame["seq"]) == ("reset", 2)


async def test_hears_the_broker_again_after_it_was_away(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "RECONNECT_SECONDS", 0.01)
    turns = iter([OSError("connection refused"), b"not an event", json.dumps(vars(state(1, step=1))).encode()])

    @asynccontextmanager
    async def unsteady() -> AsyncIterator[AsyncIterator[bytes]]:
        turn = next(turns, None)
        if isinstance(turn, OSError):
            raise turn

        async def one() -> AsyncIterator[bytes]:
            if turn is None:
                await asyncio.Event().wait()
            yield turn or b""

        yield one()

    hub, client = Hub(numbers, unsteady), Client()
    await hub.subscribe(client, "job.1", 0)
    hub.start()
    try:
        assert (await soon(client.next_frame()))["data"] == {"step": 1}
    finally:
        await hub.stop()


async def test_nobody_gets_what_they_left(hub: Hub) -> None:
    client = Client()
    await hub.subscribe(client, "job.1", 0)
    await hub.subscribe(client, CLUSTER, 0)
    hub.unsubscribe(client, "job.1")

    hub.receive(state(1, step=1))
    hub.receive(state(1, CLUSTER, slots={}))

    assert (await soon(client.next_frame()))["topic"] == CLUSTER


async def test_a_client_that_does_not_read_is_too_slow() -> None:
    client = Client(limit=2)

    for _ in range(3):
        client.send("{}")

    assert client.too_slow.is_set()


def test_many_appended_items_become_a_reset() -> None:
    events = [Event("job.1", seq, "append", {"metrics": list(range(APPEND_ITEMS))}) for seq in (1, 2)]

    [frame] = frames("job.1", events, 0, 2)

    assert (frame["kind"], frame["from_seq"], frame["seq"]) == ("reset", 0, 2)


fields = st.dictionaries(st.sampled_from(["job", "vacating", "busy"]), st.integers(0, 9) | st.none(), min_size=1)
cluster_states = st.dictionaries(
    st.sampled_from(["slots", "jobs"]), st.dictionaries(st.sampled_from("abc"), fields, min_size=1), min_size=1
)
events = st.lists(
    st.tuples(st.just("state"), cluster_states)
    | st.tuples(st.just("append"), st.fixed_dictionaries({"allocation": st.lists(st.integers(0, 99), max_size=3)})),
    max_size=30,
)


@given(events=events, cuts=st.lists(st.integers(0, 30), max_size=6))
def test_old_value_and_frames_give_what_fetching_gives(events: list, cuts: list[int]) -> None:
    published = [Event(CLUSTER, seq, kind, data) for seq, (kind, data) in enumerate(events, start=1)]
    fetched: dict[str, Any] = {"state": {}, "append": []}
    for event in published:
        _apply(fetched, {"kind": event.kind, "data": event.data})

    followed: dict[str, Any] = {"state": {}, "append": []}
    known = 0
    for tip in sorted({min(cut, len(events)) for cut in cuts} | {len(events)}):
        for frame in frames(CLUSTER, published[-HISTORY_EVENTS:], known, tip):
            assert frame["from_seq"] == known
            _apply(followed, frame)
            known = frame["seq"]

    assert (followed, known) == (fetched, len(events))


def _apply(value: dict[str, Any], frame: dict[str, Any]) -> None:
    if frame["kind"] == "state":
        value["state"] = merge(CLUSTER, value["state"], frame["data"])
    else:
        value["append"] += frame["data"]["allocation"]
