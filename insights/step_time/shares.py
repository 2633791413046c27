"""Shares of a training's time by cause: of all ranks, of each, now and over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any

from tidepool.protocol import SPENT_PARTS, host_of

from jobs.models import Job, TimeByCause
from jobs.queries.rank_numbers import rank_numbers

__all__ = [
    "RankShare",
    "Shares",
    "SharesAt",
    "measured_ranks",
    "rank_share",
    "recent_shares",
    "share_points",
    "shares_of",
    "straggler_of",
]

#: Part -> fraction of the time, 0 to 1; they add up to 1.
Shares = Mapping[str, float]

#: Fewest compared sums from which a straggler is named, and the fraction of them into which it comes last.
_FEWEST_SUMS, _MOSTLY = 10, 0.5
#: Least wait that a straggler causes, in waits that another rank causes: ranks that vary alike hold each other up in
#: turns.
_OF_OTHERS = 2.0
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
    data_busy: Annotated[
        float | None,
        "Fraction of its time in data in which its processor was busy, 0 to 1; null: not known, as workers read.",
    ] = None
    reads: Annotated[float, "Reads of a tensor on its GPU by the script, such as item(), in each step."] = 0.0
    read_share: Annotated[
        float, "Fraction of its time for which these reads have held it up, less what its GPU computed, 0 to 1."
    ] = 0.0
    read_place: Annotated[str, "Line with the longest of these reads."] = ""
    sum_bytes: Annotated[int, "Bytes that a step sums over all ranks; 0: not known."] = 0
    gpu_peak_bytes: Annotated[int | None, "Most memory that its tensors have taken; null: its device is no GPU."] = None
    gpu_peak_step: Annotated[int | None, "Step of the rank in which that was first seen."] = None
    gpu_reserved_bytes: Annotated[int | None, "Memory that torch's allocator holds."] = None
    gpu_limit_bytes: Annotated[int | None, "Memory of its GPU that it may take: CUDA and others have the rest."] = None
    core_limit: Annotated[float | None, "Cores that the training may use on its host; null: all, or not known."] = None
    core_limit_share: Annotated[
        float, "Fraction of the tenths of a second in which the training has used these cores up and waited, 0 to 1."
    ] = 0.0
    cpus: Annotated[str, "CPUs to which it is bound, such as 0-31,64-95; empty: it may use all of its host's."] = ""


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
        rank_share(key.partition("/")[2], attempt, numbers, values)
        for key, values in row.ranks.items()
        if key.startswith(f"{attempt}/")
    ]
    return sorted(found, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.member_id))


def rank_share(member_id: str, attempt: int, numbers: Mapping[str, int], values: Mapping[str, Any]) -> RankShare:
    """Return a rank's shares. values: of a row's `ranks`. numbers: member id -> rank."""
    sums, shares = values["sums"], shares_of(values["seconds"])
    return RankShare(
        numbers.get(member_id),
        member_id,
        host_of(member_id),
        attempt,
        round(sum(values["seconds"]), 3),
        values["steps"],
        shares,
        round(values["last_in"] / sums, 4) if sums else 0.0,
        values["caused"],
        sums,
        values.get("workers"),
        **_signs(values, shares),
    )


def _signs(values: Mapping[str, Any], shares: Shares) -> dict[str, Any]:
    """Return what the rank's signs say; {} as told by an earlier release."""
    signs, total = values.get("signs"), sum(values["seconds"])
    if not signs or not shares:
        return {}
    memory, cpu, data = signs["gpu_memory"] or {}, signs["data_cpu_seconds"], shares["data"] * total
    held_up = min(signs["read_seconds"], max(0.0, total - (signs["gpu_seconds"] or 0.0)))
    return {
        "data_busy": round(min(1.0, cpu / data), 4) if cpu is not None and data > 0 else None,
        "reads": round(signs["reads"] / max(1, values["steps"]), 2),
        "read_share": round(min(1.0, held_up / total), 4),
        "read_place": signs["read_place"],
        "sum_bytes": signs["sum_bytes"],
        "gpu_peak_bytes": memory.get("peak_bytes"),
        "gpu_peak_step": memory.get("peak_step"),
        "gpu_reserved_bytes": memory.get("reserved_bytes"),
        "gpu_limit_bytes": memory.get("limit_bytes"),
        "core_limit": signs.get("core_limit"),
        "core_limit_share": round(signs.get("core_periods_used_up", 0) / max(1, signs.get("core_periods", 0)), 4),
        "cpus": signs.get("cpus", ""),
    }


def straggler_of(ranks: Sequence[RankShare], recent: Shares | None = None) -> RankShare | None:
    """Return the rank that the others wait for; None: there is none that stands out.

    recent: shares of the newest minute of a training under way, in which the others have to wait, too.
    """
    present = [rank for rank in ranks if rank.rank is not None and rank.compared >= _FEWEST_SUMS]
    slowest = max(present, key=lambda rank: rank.caused_seconds, default=None)
    others = [rank for rank in present if rank is not slowest]
    if slowest is None or not others or slowest.last_in < _MOSTLY:
        return None
    waiting = sum(rank.shares.get("straggling", 0.0) for rank in others) / len(others)
    if recent:
        waiting = min(waiting, recent["straggling"] * len(present) / len(others))
    in_turns = sum(rank.caused_seconds for rank in others) / len(others)
    return slowest if waiting >= _LEAST_WAITING and slowest.caused_seconds >= _OF_OTHERS * in_turns else None


def recent_shares(points: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares of the newest minute or more; {} if nothing was measured in it."""
    if not points:
        return {}
    before = _a_minute_before(points)
    return shares_of(_difference(points[-1]["seconds"], before["seconds"] if before else None))


def _a_minute_before(points: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the newest point a minute before the last one; None: there is none. A host's clock may be set back."""
    passed = 0.0
    for later, earlier in pairwise(points[::-1]):
        passed += max(0.0, later["at"] - earlier["at"])
        if passed >= _RECENT_SECONDS:
            return earlier
    return None


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
