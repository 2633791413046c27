"""Plain Redis connections to the broker that Celery uses, for live events, wake-ups and health checks."""

from functools import cache
from urllib.parse import parse_qs, unquote, urlsplit

import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

__all__ = ["ANSWER_SECONDS", "CONNECT_SECONDS", "connect", "connect_async", "connect_registrar", "redis_url"]

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0


def redis_url(celery_url: str) -> str:
    """Return Celery's URL in redis-py's form: `redis+socket:///p?virtual_host=0` becomes `unix:///p?db=0`."""
    parts = urlsplit(celery_url)
    if parts.scheme != "redis+socket":
        return celery_url
    query = parse_qs(parts.query)
    password = f":{parts.password}@" if parts.password else ""
    return f"unix://{password}{unquote(parts.path)}?db={query.get('virtual_host', ['0'])[0]}"


def connect() -> redis.Redis:
    """Return the client of this process. It answers or fails within `ANSWER_SECONDS`."""
    return _connect(settings.TIDEPOOL_BROKER_URL)


def connect_registrar() -> redis.Redis:
    """Return the client of this process that may administer the broker's users, if any may. See `connect`."""
    return _connect(settings.TIDEPOOL_BROKER_REGISTRAR_URL)


def connect_async() -> redis.asyncio.Redis:
    """Return a client for the running event loop; the caller closes it. Reading a subscription may block forever."""
    return redis.asyncio.Redis.from_url(
        redis_url(settings.TIDEPOOL_BROKER_URL), socket_connect_timeout=CONNECT_SECONDS, health_check_interval=10
    )


@cache
def _connect(celery_url: str) -> redis.Redis:
    return redis.Redis.from_url(
        redis_url(celery_url),
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=CONNECT_SECONDS,
        # redis-py's own retries would multiply the timeouts: a request must not wait for a broker that hangs.
        retry=Retry(NoBackoff(), 0),
    )
