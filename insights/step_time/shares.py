"""Shares of a training's time by cause: of all ranks, of each, now and over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from tidepool.protocol import SPENT_PARTS, host_of

from jobs.models import Job, TimeByCause
from jobs.queries.rank_numbers import rank_numbers

__all__ = [
    "RankShare",
    "Shares",
    "SharesAt",
    "measured_ranks",
    "recent_shares",
    "share_points",
    "shares_of",
    "straggler_of",
]

#: Part -> fraction of the time, 0 to 1; they add up to 1.
Shares = Mapping[str, float]

#: Fewest compared sums from which a straggler is named, and the fraction of them into which it comes last.
_FEWEST_SUMS, _MOSTLY = 10, 0.5
#: Fraction of their time that the others wait at least.
_LEAST_WAITING = 0.03
#: Seconds that "now" covers at least.
_RECENT_SECONDS = 60.0


@dataclass(frozen=True)
class RankShare:
    rank: Annotated[int | None, "Rank in the newest generation; null: not a member of it."]
    member_id: str
    host: str
    attempt: int
    seconds: Annotated[float, "Time since it has joined."]
    steps: int
    shares: Annotated[Shares, "Part -> fraction of its time, 0 to 1."]
    last_in: Annotated[float, "Fraction of the compared sums of gradients into which it came last, 0 to 1."]
    caused_seconds: Annotated[float, "Seconds for which the other ranks have waited for it, on average over them."]
    compared: Annotated[int, "Number of compared sums."]
    workers: Annotated[int | None, "Workers of its data loader; null: not known."] = None


@dataclass(frozen=True)
class SharesAt:
    at: datetime
    step: int
    shares: Annotated[Shares, "Part -> fraction of the time since the point before, 0 to 1."]


def shares_of(seconds: Sequence[float]) -> dict[str, float]:
    """Return the parts' fractions; {} where no time has passed. seconds: in the order of `SPENT_PARTS`."""
    total = sum(seconds)
    if total <= 0:
        return {}
    return {part: round(each / total, 4) for part, each in zip(SPENT_PARTS, seconds, strict=True)}


def measured_ranks(job: Job, row: TimeByCause) -> list[RankShare]:
    """Return the ranks of the newest attempt, members of the active generation first, in their order."""
    attempt = job.run.attempt
    numbers = rank_numbers(job, attempt)
    found = [
        _rank(key.partition("/")[2], attempt, numbers, values)
        for key, values in row.ranks.items()
        if key.startswith(f"{attempt}/")
    ]
    return sorted(found, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.member_id))


def _rank(member_id: str, attempt: int, numbers: Mapping[str, int], values: Mapping[str, Any]) -> RankShare:
    sums = values["sums"]
    return RankShare(
        numbers.get(member_id),
        member_id,
        host_of(member_id),
        attempt,
        round(sum(values["seconds"]), 3),
        values["steps"],
        shares_of(values["seconds"]),
        round(values["last_in"] / sums, 4) if sums else 0.0,
        values["caused"],
        sums,
        values.get("workers"),
    )


def straggler_of(ranks: Sequence[RankShare]) -> RankShare | None:
    """Return the rank that the others wait for; None: there is none that mostly comes last."""
    present = [rank for rank in ranks if rank.rank is not None and rank.compared >= _FEWEST_SUMS]
    slowest = max(present, key=lambda rank: rank.caused_seconds, default=None)
    others = [rank for rank in present if rank is not slowest]
    if slowest is None or not others or slowest.last_in < _MOSTLY:
        return None
    waiting = sum(rank.shares.get("straggling", 0.0) for rank in others) / len(others)
    return slowest if waiting >= _LEAST_WAITING else None


def recent_shares(points: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares of the newest minute or more; {} if nothing was measured in it."""
    if not points:
        return {}
    newest = points[-1]
    before = next((point for point in reversed(points[:-1]) if newest["at"] - point["at"] >= _RECENT_SECONDS), None)
    return shares_of(_difference(newest["seconds"], before["seconds"] if before else None))


def share_points(points: Sequence[Mapping[str, Any]]) -> list[SharesAt]:
    """Return the shares of each span between two points."""
    pairs = zip([None, *points], points, strict=False)
    found = [
        (point, shares_of(_difference(point["seconds"], before["seconds"] if before else None)))
        for before, point in pairs
    ]
    return [
        SharesAt(datetime.fromtimestamp(point["at"], UTC), point["step"], shares) for point, shares in found if shares
    ]


def _difference(later: Sequence[float], earlier: Sequence[float] | None) -> list[float]:
    """Return what has been added. A coordinator's successor may count a little less straggling than before."""
    if earlier is None:
        return [*later]
    return [max(0.0, after - before) for after, before in zip(later, earlier, strict=True)]
