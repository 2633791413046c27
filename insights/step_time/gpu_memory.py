"""One sentence on how far the memory of a training's GPUs is used."""

from collections.abc import Sequence

from tidepool.units import size_words

from insights.step_time.shares import RankShare

__all__ = ["memory_words"]


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
