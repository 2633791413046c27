"""Events are numbered in the writing transaction, sent after its commit, and never stop a write."""

import json
import math
from contextlib import AbstractContextManager, nullcontext

import pytest
import redis
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from core import live
from core.models import Topic
from workers.topics import CLUSTER


class RecordingBroker:
    """Double of the broker and its pipelines."""

    def __init__(self) -> None:
        self.sent: list[dict] = []
        self.round_trips = 0

    def pipeline(self, transaction: bool) -> AbstractContextManager["RecordingBroker"]:
        return nullcontext(self)

    def publish(self, channel: str, payload: str) -> None:
        assert channel == live.LIVE_CHANNEL
        self.sent.append(json.loads(payload))

    def execute(self) -> None:
        self.round_trips += 1


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> RecordingBroker:
    broker = RecordingBroker()
    monkeypatch.setattr(live, "connect", lambda: broker)
    return broker


@pytest.mark.django_db
def test_numbers_each_topic_without_gaps(broker: RecordingBroker, django_capture_on_commit_callbacks: object) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        live.publish("job.1", "state", {"step": 1})
        live.publish(CLUSTER, "state", {"slots": {}})
        live.publish("job.1", "append", {"events": []})

    assert [(event["topic"], event["seq"]) for event in broker.sent] == [("job.1", 1), ("cluster", 1), ("job.1", 2)]
    assert live.current_seqs(["job.1", "cluster", "job.7"]) == {"job.1": 2, "cluster": 1, "job.7": 0}


@pytest.mark.django_db(transaction=True)
def test_news_of_many_topics_cost_as_much_as_news_of_one(broker: RecordingBroker) -> None:
    def cost(topics: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            live.publish_all("state", {f"job.{number}": {"step": number} for number in range(topics)})
        return len(queries)

    live.publish_all("append", {"job.0": {}, "job.1": {}})
    assert cost(2) == cost(1)
    cost(60)  # most of them are new

    sent = [(event["topic"], event["seq"]) for event in broker.sent]
    assert sent[:5] == [("job.0", 1), ("job.1", 1), ("job.0", 2), ("job.1", 2), ("job.0", 3)]
    assert sent[5:] == [("job.0", 4), ("job.1", 3), *((f"job.{number}", 1) for number in range(2, 60))]
    assert live.current_seqs(["job.0", "job.1", "job.59"]) == {"job.0": 4, "job.1": 3, "job.59": 1}
    assert broker.round_trips == 4


@pytest.mark.django_db(transaction=True)
def test_sends_only_what_was_committed(broker: RecordingBroker) -> None:
    with transaction.atomic():
        live.publish("job.1", "state", {"step": 1})
        assert broker.sent == []
        transaction.set_rollback(True)

    assert broker.sent == []
    assert not Topic.objects.filter(seq__gt=0).exists()


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_down_does_not_fail_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class Down(RecordingBroker):
        def execute(self) -> None:
            raise redis.ConnectionError("connection refused")

    monkeypatch.setattr(live, "connect", Down)

    live.publish("job.1", "state", {"step": 1})

    assert live.current_seqs(["job.1"]) == {"job.1": 1}


@pytest.mark.django_db(transaction=True)
def test_values_that_are_not_numbers_become_null(broker: RecordingBroker) -> None:
    live.publish("job.1", "append", {"metrics": [{"value": math.nan}, {"value": math.inf}, {"value": 1.5}]})

    assert broker.sent[0]["data"] == {"metrics": [{"value": None}, {"value": None}, {"value": 1.5}]}


def test_merges_a_slot_by_field_and_a_reason_as_a_whole() -> None:
    slots = live.merge(CLUSTER, {"slots": {"a:0": {"job": 1, "vacating": True}}}, {"slots": {"a:0": {"job": 2}}})
    job = live.merge("job.1", {"reason": {"params": {"old": 1}}, "step": 3}, {"reason": {"params": {"new": 2}}})

    assert slots == {"slots": {"a:0": {"job": 2, "vacating": True}}}
    assert job == {"reason": {"params": {"new": 2}}, "step": 3}
