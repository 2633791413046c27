"""The use of GPUs' memory: one sentence, its course by step, and a warning before one is full."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any

from tidepool.units import size_words

from insights.step_time.shares import RankShare
from jobs.control.time_by_cause import NEARLY_FULL

__all__ = ["MemoryAt", "memory_points", "memory_warning", "memory_words"]

#: Number of times that the peak rises at least before its growth is named, and the newest part of the points in which.
_LEAST_RISES, _NEWEST_PART = 4, 0.5


@dataclass(frozen=True)
class MemoryAt:
    at: datetime
    step: int
    peak_bytes: Annotated[int, "Most memory that tensors had taken until then, of the fullest GPU."]
    reserved_bytes: Annotated[int, "Memory that torch's allocator held there."]
    limit_bytes: Annotated[int, "Memory that the rank may take of that GPU."]


def memory_points(points: Sequence[Mapping[str, Any]]) -> list[MemoryAt]:
    """Return the course of the fullest GPU's memory. points: those of a row of `TimeByCause`."""
    return [
        MemoryAt(
            datetime.fromtimestamp(point["at"], UTC),
            point["step"],
            *(int(point["memory"][name]) for name in ("peak_bytes", "reserved_bytes", "limit_bytes")),
        )
        for point in points
        if "memory" in point
    ]


def memory_words(ranks: Sequence[RankShare]) -> str:
    """Return "Rank 2 comes closest to the limit of its GPU's memory: ...". Only present ranks count."""
    present = [rank for rank in ranks if rank.rank is not None]
    used = {
        rank.rank: (rank.gpu_peak_bytes, rank.gpu_limit_bytes, rank.gpu_reserved_bytes, rank.gpu_peak_step)
        for rank in present
        if rank.gpu_peak_bytes is not None and rank.gpu_limit_bytes
    }
    if not used:
        return "No rank computes on a GPU, so no memory of a GPU is measured." if present else ""
    fullest = max(used, key=lambda rank: used[rank][0] / (used[rank][1] or 1))
    peak, limit, reserved, step = used[fullest]
    below = max(0.0, 1 - peak / (limit or peak))
    return (
        f"Rank {fullest} comes closest to the limit of its GPU's memory: its tensors have taken up to"
        f" {size_words(peak)} of {size_words(limit or 0)}, {below * 100:.0f} % below the limit, first at its step"
        f" {step}. torch's allocator holds {size_words(reserved or 0)}."
    )


def memory_warning(course: Sequence[MemoryAt]) -> str:
    """Return a warning before a GPU's memory is full; "": there is no reason for one."""
    if not course:
        return ""
    newest = course[-1]
    if end := _full_at(_since_start(course)):
        return (
            f"The memory of a GPU fills up: its peak has grown to {size_words(newest.peak_bytes)}, and at this rate it"
            f" reaches the limit of {size_words(newest.limit_bytes)} at about step {end:,}. Look for tensors that are"
            " kept from step to step, such as losses in a list: keep loss.item(), or loss.detach()."
        )
    if newest.peak_bytes > (1 - NEARLY_FULL) * newest.limit_bytes:
        return (
            f"Less than {NEARLY_FULL * 100:.0f} % of a GPU's memory is left at its peak: longer samples, or a larger"
            " batch, could end the training. A smaller batch on each GPU, or activation checkpointing, takes less."
        )
    return ""


def _since_start(course: Sequence[MemoryAt]) -> list[MemoryAt]:
    """Return the newest points in which the peak does not fall: it does where an attempt begins, or a rank leaves."""
    falls = [place for place, (before, after) in enumerate(pairwise(course), 1) if after.peak_bytes < before.peak_bytes]
    return [*course[falls[-1] if falls else 0 :]]


def _full_at(course: Sequence[MemoryAt]) -> int | None:
    """Return the step at which the peak reaches the limit if it goes on as in the newer half of the points.

    None: it hardly grows, or would need more steps for that than twice those made so far.
    """
    newer = course[int(len(course) * _NEWEST_PART) :]
    rises = sum(after.peak_bytes > before.peak_bytes for before, after in pairwise(newer))
    if rises < _LEAST_RISES or rises < (len(newer) - 1) / 2:
        return None
    first, newest = newer[0], newer[-1]
    steps, grown = newest.step - first.step, newest.peak_bytes - first.peak_bytes
    if steps <= 0 or newest.peak_bytes >= newest.limit_bytes:
        return None
    end = newest.step + round((newest.limit_bytes - newest.peak_bytes) * steps / grown)
    return end if end <= 3 * newest.step else None
