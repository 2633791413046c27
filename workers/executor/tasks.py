"""The one command that an executor takes."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery, Task
from tidepool.protocol import ProtocolError, Sync, from_json

__all__ = ["SYNC_TASK", "add_tasks"]

logger = logging.getLogger(__name__)

SYNC_TASK = "executor.sync"


def add_tasks(app: Celery) -> None:
    app.task(_sync, name=SYNC_TASK, bind=True, ignore_result=True)


def _sync(task: Task, values: dict[str, Any]) -> None:
    """Take note of a desired state and return: the supervisor carries it out. `values` is a Sync as plain JSON."""
    try:
        sync = from_json(Sync, values)
    except ProtocolError as error:
        logger.warning("a desired state was refused: %s", error)
        return
    task.app.supervisor.submit(sync)
