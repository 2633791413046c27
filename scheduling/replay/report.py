"""Figures of a replay: completion times, GPU time, and fairness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from scheduling.replay.rounds import Entry
from scheduling.replay.world import Replayed

__all__ = ["Figures", "figures"]


@dataclass(frozen=True)
class Figures:
    """Seconds from submission to end; GPU-hours."""

    average: float
    median: float
    p99: float
    #: Until the last is over.
    makespan: float
    gpu_hours: float
    #: GPU-hours of these in which GPUs idled in pauses or waited for others.
    lost_gpu_hours: float
    resizes: int
    #: Completion time over that of the same training alone on 8 GPUs.
    rho_mean: float
    rho_worst: float
    #: Part of the trainings that took longer than alone.
    rho_above_one: float
    #: CPU milliseconds of a cycle of the scheduler.
    cycles: int
    cycle_ms: float


def figures(jobs: Sequence[Entry | Replayed], alone: Mapping[str, float], cycles: Sequence[float] = ()) -> Figures:
    """`alone`: application -> seconds alone on 8 GPUs. `cycles`: CPU seconds of each."""
    times = [job.completion_seconds for job in jobs]
    rho = [job.completion_seconds / alone[job.physics.application.name] for job in jobs]
    return Figures(
        average=fmean(times),
        median=float(np.median(times)),
        p99=float(np.percentile(times, 99)),
        makespan=max(job.ended_at or 0.0 for job in jobs) - min(job.submitted_at for job in jobs),
        gpu_hours=sum(job.physics.gpu_seconds for job in jobs) / 3600,
        lost_gpu_hours=sum(job.physics.lost for job in jobs) / 3600,
        resizes=sum(job.physics.resizes for job in jobs),
        rho_mean=fmean(rho),
        rho_worst=max(rho),
        rho_above_one=sum(one > 1 for one in rho) / len(rho),
        cycles=len(cycles),
        cycle_ms=1000 * fmean(cycles) if cycles else 0.0,
    )
