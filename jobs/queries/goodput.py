"""Measures of a training's batch by its ranks, for display."""

from dataclasses import dataclass

from tidepool.goodput.model import Bounds, efficiency
from tidepool.profiles import bounds_of, noise_of
from tidepool.protocol import AdaptedBatch, from_json

from jobs.models import Job, JobProfile

__all__ = ["BatchNow", "batch_now"]


@dataclass(frozen=True)
class BatchNow:
    """The batch of a training that adapts it, as it was told last."""

    #: Samples of a step over all ranks, of a rank's micro-batch, and micro-batches beside the last one.
    batch: int
    micro_batch: int
    accumulation: int
    #: Samples of a step as it was submitted.
    submitted: int
    #: How many steps at the submitted batch a step is worth, and what a sample is worth against one there.
    gain: float
    efficiency: float
    #: From about this batch on more samples in a step help little; None: not measured yet, or endless.
    noise_scale: float | None
    #: By which the learning rates of its parameter groups are multiplied, at least and at most.
    least_rate_factor: float
    most_rate_factor: float
    bounds: Bounds
    #: The loss had risen after the batch grew: it stays as it was submitted.
    is_pinned: bool


def batch_now(job: Job) -> BatchNow | None:
    """None: the batch does not adapt, or nothing was told yet."""
    told = JobProfile.objects.filter(job=job).values_list("adapted", flat=True).first()
    if told is None:
        return None
    adapted = from_json(AdaptedBatch, told)
    noise = noise_of(adapted)
    return BatchNow(
        batch=adapted.batch,
        micro_batch=adapted.micro_batch,
        accumulation=adapted.accumulation,
        submitted=adapted.submitted,
        gain=adapted.gain,
        efficiency=float(efficiency(noise, adapted.submitted, adapted.batch)),
        noise_scale=noise.samples if noise is not None and noise.squared_gradient else None,
        least_rate_factor=min(adapted.rate_factors, default=1.0),
        most_rate_factor=max(adapted.rate_factors, default=1.0),
        bounds=bounds_of(adapted),
        is_pinned=adapted.pinned,
    )
