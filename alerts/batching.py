"""Decides when alerts go out, and how many in a message. Pure: the clock comes in as an argument."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from tidepool.backoff import Backoff

__all__ = ["MAX_TRIES", "Quiet", "is_quiet", "messages_of", "next_try"]

#: Rate limit of messages to a channel; alerts beyond it are combined into one message.
_MOST_MESSAGES = 5
_WINDOW = timedelta(minutes=10)
MAX_TRIES = 5
#: 1, 2, 4 and 8 minutes.
_FIRST_SECONDS, _LONGEST_SECONDS = 60.0, 1800.0


@dataclass(frozen=True)
class Quiet:
    begins: time
    ends: time
    time_zone: str


def is_quiet(quiet: Quiet | None, now: datetime) -> bool:
    """Return whether it is between the two times of the day, which may have midnight between them."""
    if quiet is None:
        return False
    clock = now.astimezone(ZoneInfo(quiet.time_zone)).time()
    if quiet.begins < quiet.ends:
        return quiet.begins <= clock < quiet.ends
    return clock >= quiet.begins or clock < quiet.ends


def messages_of(waiting: Sequence[int], sent: Sequence[datetime], now: datetime) -> list[list[int]]:
    """Return the alerts that go out now, those of one message together.

    waiting: numbers of alerts to one channel, the oldest first. sent: when its messages were made.
    Each alert is a message of its own while there is room for all of them; otherwise one message, a digest, has all,
    as soon as there is room for one.
    """
    room = _MOST_MESSAGES - sum(now - _WINDOW < moment for moment in sent)
    if not waiting or room <= 0:
        return []
    return [[alert] for alert in waiting] if len(waiting) <= room else [list(waiting)]


def next_try(tries: int, now: datetime) -> datetime:
    """Return the time of the next attempt after this many failed ones."""
    backoff = Backoff(first_seconds=_FIRST_SECONDS, longest_seconds=_LONGEST_SECONDS)
    for _ in range(tries):
        backoff.add(0.0)
    return now + timedelta(seconds=backoff.pause_seconds)
