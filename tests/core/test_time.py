"""Times in words."""

from datetime import UTC, datetime, timedelta

import pytest

from core.time import relative

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1.4, "now"),
        (-59, "59 s ago"),
        (-119, "1 min ago"),
        (-86_399, "23 h ago"),
        (-200_000, "2 days ago"),
        (5, "in 5 s"),
        (59.6, "in 1 min"),
        (89, "in 1 min"),
        (3_569, "in 59 min"),
        (3_570, "in 1 h"),
        (86_399, "in 1 day"),
        (90 * 86_400 - 3, "in 90 days"),
    ],
)
def test_the_past_is_rounded_down_and_the_future_to_the_nearest(seconds: float, words: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == words
