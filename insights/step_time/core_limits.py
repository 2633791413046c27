"""Cores of a training on its hosts, and one sentence on those where it has used them up."""

from collections.abc import Sequence

from tidepool.units import cores_words

from core.text import plural
from insights.step_time.shares import RankShare
from jobs.models import Job
from workers.models import Host

__all__ = ["core_limit_words", "cores_per_gpu"]

#: Fraction of the time from which it is worth a sentence.
_WORTH = 0.1


def core_limit_words(ranks: Sequence[RankShare]) -> str:
    """Return "On gpu1, the training has used up its 4 cores ..."; "": it has not, or nothing limits it."""
    held = {rank.host: rank for rank in ranks if rank.rank is not None and rank.core_limit is not None}
    worst = max(held.values(), key=lambda rank: rank.core_limit_share, default=None)
    if worst is None or worst.core_limit is None or worst.core_limit_share < _WORTH:
        return ""
    others = sum(rank.core_limit_share >= _WORTH for rank in held.values()) - 1
    beside = plural(others, " and on {count} other host", " and on {count} other hosts") if others else ""
    return (
        f"On {worst.host}{beside}, the training uses up the cores that it may use there: its processes had to wait in"
        f" {worst.core_limit_share * 100:.0f} % of the tenths of a second, with a limit of"
        f" {cores_words(worst.core_limit)}. Ask for more cores with each GPU (--cpus), or start fewer workers."
    )


def cores_per_gpu(job: Job, host: Host) -> float | None:
    """Return the cores that the job has with each of its GPUs there: those that it asked for, or what a GPU stands for.
    None: the host does not tell."""
    if job.wish is not None and job.wish.cores:
        return job.wish.cores
    return None if host.share is None else host.share.cores
