import base64
import json
from typing import Any

import redis
from celery import Celery

from core.broker import redis_url
from core.task_messages import task_message
from tests.processes import broker


def test_a_message_is_what_celery_writes() -> None:
    with broker() as url:
        app = Celery("sender", broker=url)
        app.send_task("executor.sync", args=[{"revision": 7}], queue="host.a", ignore_result=True, retry=False)
        connection = redis.Redis.from_url(redis_url(url))
        connection.lpush("host.a", task_message("executor.sync", [{"revision": 7}], "host.a"))
        ours, celerys = (json.loads(message) for message in connection.lrange("host.a", 0, -1))
        app.close()
    assert _shape(ours) == _shape(celerys)
    assert json.loads(base64.b64decode(ours["body"])) == json.loads(base64.b64decode(celerys["body"]))


def test_a_celery_consumer_takes_it() -> None:
    with broker() as url:
        app = Celery("taker", broker=url)
        redis.Redis.from_url(redis_url(url)).lpush("host.a", task_message("executor.sync", [1], "host.a"))
        with app.connection_for_read() as connection:
            taken = connection.SimpleQueue("host.a").get(timeout=10)
            taken.ack()
        app.close()
    assert (taken.headers["task"], taken.decode()[0]) == ("executor.sync", [1])


def _shape(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message but for ids, and for what only people and unused features read."""
    headers = dict(message["headers"])
    for name in ("id", "root_id", "argsrepr", "kwargsrepr", "origin"):
        headers.pop(name)
    # Keys of features that are not used here are null in Celery's message.
    used = {name: value for name, value in headers.items() if value not in (None, [None, None], {}, 0)}
    properties = {name: type(value).__name__ for name, value in message["properties"].items()}
    return {**message, "body": "", "headers": used, "properties": properties}
