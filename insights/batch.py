"""Latest reported measurements of a training's batch, for display."""

from dataclasses import dataclass
from typing import Annotated

from tidepool.goodput.model import Bounds, efficiency
from tidepool.profile_checks import bounds_of, noise_of
from tidepool.protocol import AdaptedBatch, from_json

from jobs.models import Job, JobProfile

__all__ = ["BatchNow", "batch_now"]


@dataclass(frozen=True)
class BatchNow:
    """The last reported batch of a training that adapts its batch size."""

    batch: Annotated[int, "Samples per step, over all GPUs."]
    micro_batch: Annotated[int, "Samples that a GPU computes at once."]
    accumulation: Annotated[int, "Micro-batches per step before the last one."]
    submitted: Annotated[int, "Samples per step as submitted."]
    gain: Annotated[float, "Progress of a step, in steps at the submitted batch."]
    efficiency: Annotated[float, "Progress per sample, relative to the submitted batch."]
    least_rate_factor: Annotated[float, "Smallest factor of a learning rate among the parameter groups."]
    most_rate_factor: Annotated[float, "Largest factor of a learning rate."]
    #: Batch size from which larger batches help little.
    noise_scale: Annotated[float | None, "In samples; null: not measured, or infinite."]
    is_pinned: Annotated[bool, "The loss rose after a growth: the batch stays as submitted."]
    bounds: Bounds


def batch_now(job: Job) -> BatchNow | None:
    """Return the batch; None if the batch does not adapt, or none has been reported."""
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
