"""Wake-ups of the scheduler. Each is a hint: without it the scheduler looks by itself a second later.

Sent by whatever frees slots or queues a job; received by the scheduler's process.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import redis
from django.db import transaction
from redis.client import PubSub

from core.broker import connect

__all__ = ["WAKE_CHANNEL", "WakeUps", "wake_scheduler"]

logger = logging.getLogger(__name__)

WAKE_CHANNEL = "tidepool.wake"


def wake_scheduler() -> None:
    """Once the caller's transaction is committed."""
    transaction.on_commit(_send)


def _send() -> None:
    try:
        connect().publish(WAKE_CHANNEL, b"")
    except (redis.RedisError, OSError) as error:
        logger.warning("the scheduler was not woken, it looks by itself: %s", error)


class WakeUps:
    """The scheduler's end. Subscribes when first waited for, and again after the broker was away."""

    def __init__(self) -> None:
        self._subscription: PubSub | None = None

    def wait(self, seconds: float) -> bool:
        """Until somebody wakes us, or `seconds` have passed. Several wake-ups count as one."""
        try:
            subscription = self._subscribed()
            woken = subscription.get_message(timeout=seconds) is not None
            while subscription.get_message(timeout=0) is not None:
                woken = True
        except (redis.RedisError, OSError):
            self.close()
            raise
        return woken

    def close(self) -> None:
        if self._subscription is not None:
            with suppress(redis.RedisError, OSError):
                self._subscription.close()
            self._subscription = None

    def _subscribed(self) -> PubSub:
        if self._subscription is None:
            self._subscription = connect().pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
            self._subscription.subscribe(WAKE_CHANNEL)
        return self._subscription
