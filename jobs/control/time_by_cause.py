"""Time of a job's ranks by cause, and memory of their GPUs: what its coordinator reports, kept small."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidepool.protocol import SPENT_PARTS, RankTime, TimeSpent, host_of, to_json
from tidepool.units import size_words

from jobs.control.transition import Why, record
from jobs.messages import message
from jobs.models import Job, TimeByCause
from jobs.states import Reason

__all__ = ["MOST_POINTS", "MOST_RANKS", "NEARLY_FULL", "store"]

#: Number of ranks and of points in time that are kept of a job.
MOST_RANKS = 256
MOST_POINTS = 240
#: Fraction of the limit of a GPU's memory below which, from the limit, an event says that it is nearly full.
NEARLY_FULL = 0.12


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
    memory = _fullest(believed)
    _tell_if_nearly_full(job, memory, row.points)
    point = {"at": told.at, "step": told.step, "seconds": seconds} | ({"memory": memory} if memory else {})
    row.points = _thinned([*row.points, point])
    row.at = datetime.fromtimestamp(told.at, UTC)
    row.save()


def _fullest(ranks: Iterable[RankTime]) -> dict[str, Any] | None:
    """Return the memory of the GPU that is closest to its limit; None: no rank computes on a GPU."""
    known = [
        {"host": host_of(rank.member_id), **to_json(memory)}
        for rank in ranks
        if (memory := rank.signs.gpu_memory) is not None and memory.limit_bytes
    ]
    return max(known, key=_used, default=None)


def _used(memory: Mapping[str, Any]) -> float:
    return float(memory["peak_bytes"] / memory["limit_bytes"])


def _tell_if_nearly_full(job: Job, memory: Mapping[str, Any] | None, before: Sequence[Mapping[str, Any]]) -> None:
    """Record once that a GPU is nearly full. before: the points so far."""
    known = next((point["memory"] for point in reversed(before) if "memory" in point), None)
    if memory is None or _used(memory) <= 1 - NEARLY_FULL or (known and _used(known) > 1 - NEARLY_FULL):
        return
    peak, limit, below = memory["peak_bytes"], memory["limit_bytes"], max(0.0, 1 - _used(memory))
    sizes = {"peak": size_words(peak), "limit": size_words(limit), "below": f"{below * 100:.0f} %"}
    why = message("gpu_nearly_full", host=memory["host"], step=memory["peak_step"], **sizes)
    record(job, Why(Reason.OUT_OF_MEMORY, why, "executor"))


def _is_plausible(rank: RankTime) -> bool:
    return len(rank.seconds) == len(SPENT_PARTS) and all(math.isfinite(each) for each in rank.seconds)


def _sums(columns: Iterable[list[float]]) -> list[float]:
    filled = [column for column in columns if column]
    return [round(sum(values), 3) for values in zip(*filled, strict=True)]


def _thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points; of too many, each second one and the newest."""
    return points if len(points) <= MOST_POINTS else [*points[:-1:2], points[-1]]
