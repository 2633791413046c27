"""Tasks in the form in which Celery's workers take them from Redis: sending by Celery costs ten times as much."""

import base64
import json
import uuid
from collections.abc import Sequence
from typing import Any

__all__ = ["task_message"]


def task_message(task: str, args: Sequence[Any], queue: str) -> str:
    """Return the message to push to the list named `queue`, for a task whose result nobody wants."""
    number = str(uuid.uuid4())
    options = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = base64.b64encode(json.dumps([[*args], {}, options]).encode()).decode()
    message = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": task,
            "id": number,
            "root_id": number,
            "parent_id": None,
            "group": None,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [None, None],
            "ignore_result": True,
            "argsrepr": "",
            "kwargsrepr": "",
            "origin": "tidepool",
        },
        "properties": {
            "correlation_id": number,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": number,
        },
    }
    return json.dumps(message)
