"""Measures of a training's batch by its ranks, for display."""

from dataclasses import dataclass
from typing import Annotated

from tidepool.goodput.model import Bounds, efficiency
from tidepool.profile_checks import bounds_of, noise_of
from tidepool.protocol import AdaptedBatch, from_json

from jobs.models import Job, JobProfile

__all__ = ["BatchNow", "batch_now"]


@dataclass(frozen=True)
class BatchNow:
    """The batch of a training that adapts it, as it was told last."""

    batch: Annotated[int, "Samples of a step over all GPUs."]
    micro_batch: Annotated[int, "Samples that a GPU computes at once."]
    accumulation: Annotated[int, "Micro-batches of a step beside the last one."]
    submitted: Annotated[int, "Samples of a step as it was submitted."]
    gain: Annotated[float, "How many steps at the submitted batch a step is worth."]
    efficiency: Annotated[float, "What a sample is worth, against one at the submitted batch."]
    least_rate_factor: Annotated[float, "Least factor of a learning rate, over parameter groups."]
    most_rate_factor: Annotated[float, "The most."]
    #: From about this batch on more samples in a step help little.
    noise_scale: Annotated[float | None, "In samples; null: not measured, or endless."]
    is_pinned: Annotated[bool, "The loss rose after a growth: it stays as it was submitted."]
    bounds: Bounds


def batch_now(job: Job) -> BatchNow | None:
    """Return the batch; None: it does not adapt, or nothing was told yet."""
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
