"""Live events: numbered in the transaction of a change, published after its commit.

An event is a hint: a page that misses one sees a gap in the topic's numbers and fetches the state by REST. A broker
that is down therefore never fails a write. `hub.py` fans events out to browsers.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import redis
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models import F

from core.broker import connect
from core.models import Topic

__all__ = [
    "LIVE_CHANNEL",
    "NEWEST_CHANNEL",
    "Event",
    "Kind",
    "current_seqs",
    "hold",
    "merge",
    "merge_depths",
    "publish",
    "publish_all",
    "register_merge_depth",
    "send_newest",
    "without_nan",
]

logger = logging.getLogger(__name__)

LIVE_CHANNEL = "tidepool.live"
#: Channel of values that are neither numbered nor kept, see `core.newest_values`.
NEWEST_CHANNEL = "tidepool.newest"

Kind = Literal["state", "append"]

#: Number of events that a log line names.
_MOST_NAMED = 3
#: Levels of keys that a state event merges, by topic; any other topic merges the first level alone. Below it a value
#: replaces the old one: with three levels `{"slots": {"host:0": {"job": 3}}}` changes one field of one slot.
#: A state event removes nothing: an object that goes gets a state of its own.
_merge_depths: dict[str, int] = {}


def register_merge_depth(topic: str, depth: int) -> None:
    """Merge state events of the topic over `depth` levels of keys. Called from `AppConfig.ready`."""
    _merge_depths[topic] = depth


@dataclass(frozen=True)
class Event:
    topic: str
    #: Number of this event in its topic, without gaps.
    seq: int
    kind: Kind
    data: dict[str, Any]


def publish(topic: str, kind: Kind, data: dict[str, Any]) -> None:
    """Number the event in the caller's transaction, and send it after the commit."""
    publish_all(kind, {topic: data})


def publish_all(kind: Kind, news: Mapping[str, dict[str, Any]]) -> None:
    """Publish one event for each of these topics, in as many queries as for one."""
    if not news:
        return
    with transaction.atomic():
        seqs = hold(*news)
        # The rows stay locked until the commit: events of a topic are committed in the order of their numbers.
        Topic.objects.filter(name__in=seqs).update(seq=F("seq") + 1)
        events = [Event(topic, seqs[topic] + 1, kind, data) for topic, data in news.items()]
        transaction.on_commit(partial(_send, [(event, _as_json(vars(event))) for event in events]))


def hold(*topics: str) -> dict[str, int]:
    """Lock these topics until the caller's transaction ends, and return the newest number of each.

    Call it before you lock other rows, to keep the order of locks.
    """
    locked = Topic.objects.select_for_update().filter(name__in=topics).order_by("name")
    found = dict(locked.values_list("name", "seq"))
    if missing := [Topic(name=topic) for topic in topics if topic not in found]:
        Topic.objects.bulk_create(missing, ignore_conflicts=True)
        found = dict(locked.values_list("name", "seq"))
    return found


def current_seqs(topics: Iterable[str]) -> dict[str, int]:
    """Return the newest number of each topic; 0 if nothing has been published."""
    topics = list(topics)
    found = dict(Topic.objects.filter(name__in=topics).values_list("name", "seq"))
    return {topic: found.get(topic, 0) for topic in topics}


def merge_depths() -> dict[str, int]:
    """Return the levels of keys that a state event merges, of each topic that merges more than one."""
    return dict(_merge_depths)


def merge(topic: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Apply a state event to a state: the same rule in the hub, in the browser (`live.js`) and in tests."""
    return _merge(old, new, _merge_depths.get(topic, 1))


def without_nan(value: Any) -> Any:
    """Return the value with null for each NaN, which JSON lacks; charts draw a gap."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value


def _merge(old: dict[str, Any], new: dict[str, Any], depth: int) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        inner = merged.get(key)
        if depth > 1 and isinstance(inner, dict) and isinstance(value, dict):
            merged[key] = _merge(inner, value, depth - 1)
        else:
            merged[key] = value
    return merged


def send_newest(news: Mapping[str, Mapping[str, Any]]) -> None:
    """Send the newest values of topics, at once and apart from the database, to the pages that watch these now."""
    try:
        connect().publish(NEWEST_CHANNEL, _as_json(news))
    except (redis.RedisError, OSError) as error:
        logger.warning("newest values were not sent, the next ones follow: %s", error)


def _send(events: Sequence[tuple[Event, str]]) -> None:
    try:
        with connect().pipeline(transaction=False) as pipeline:
            for _, text in events:
                pipeline.publish(LIVE_CHANNEL, text)
            pipeline.execute()
    except (redis.RedisError, OSError) as error:
        topics = ", ".join(f"{event.topic} {event.seq}" for event, _ in events[:_MOST_NAMED])
        logger.warning("%s events (%s) were not published, pages will fetch them: %s", len(events), topics, error)


def _as_json(value: Any) -> str:
    """Return the value as JSON, with null for each NaN: few values have one, and to look for it takes as long."""
    try:
        return json.dumps(value, cls=DjangoJSONEncoder, allow_nan=False)
    except ValueError:
        return json.dumps(without_nan(value), cls=DjangoJSONEncoder, allow_nan=False)
