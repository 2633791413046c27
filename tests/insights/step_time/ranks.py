"""Ranks with shares that a test chooses."""

from tidepool.protocol import SPENT_PARTS

from insights.step_time.shares import RankShare

__all__ = ["rank", "shares"]


def shares(**parts: float) -> dict[str, float]:
    return dict.fromkeys(SPENT_PARTS, 0.0) | parts


def rank(number: int, *, last_in: float = 0.0, caused: float = 0.0, compared: int = 100, **parts: float) -> RankShare:
    host = f"gpu{number}"
    return RankShare(number, f"{host}.0.1", host, 1, 100.0, 50, shares(**parts), last_in, caused, compared)
