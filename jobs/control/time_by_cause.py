"""Time of a job's ranks by cause: the sums that its coordinator reports, kept small."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from tidepool.protocol import SPENT_PARTS, RankTime, TimeSpent, to_json

from jobs.models import Job, TimeByCause

__all__ = ["MOST_POINTS", "MOST_RANKS", "store"]

#: Number of ranks and of points in time that are kept of a job.
MOST_RANKS = 256
MOST_POINTS = 240


def store(job: Job, told: TimeSpent) -> None:
    """Take the newest sums of these ranks, which replace those before. The caller holds the job's lock."""
    believed = [rank for rank in told.ranks if _is_plausible(rank)]
    if not believed:
        return
    row = TimeByCause.objects.filter(job=job).first() or TimeByCause(job=job)
    for rank in believed:
        key = f"{job.run.attempt}/{rank.member_id}"
        # A rank that was heard of last comes last.
        row.ranks.pop(key, None)
        row.ranks[key] = {
            "seconds": [*rank.seconds],
            "steps": rank.steps,
            "caused": rank.caused_seconds,
            "sums": rank.sums,
            "last_in": rank.last_in,
            "workers": rank.workers,
            "signs": to_json(rank.signs),
        }
    while len(row.ranks) > MOST_RANKS:
        oldest = next(iter(row.ranks))
        row.former = _sums([row.former, row.ranks.pop(oldest)["seconds"]])
    seconds = _sums([row.former, *(rank["seconds"] for rank in row.ranks.values())])
    row.points = _thinned([*row.points, {"at": told.at, "step": told.step, "seconds": seconds}])
    row.at = datetime.fromtimestamp(told.at, UTC)
    row.save()


def _is_plausible(rank: RankTime) -> bool:
    return len(rank.seconds) == len(SPENT_PARTS) and all(math.isfinite(each) for each in rank.seconds)


def _sums(columns: Iterable[list[float]]) -> list[float]:
    filled = [column for column in columns if column]
    return [round(sum(values), 3) for values in zip(*filled, strict=True)]


def _thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points; of too many, each second one and the newest."""
    return points if len(points) <= MOST_POINTS else [*points[:-1:2], points[-1]]
