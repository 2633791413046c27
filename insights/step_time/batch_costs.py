"""How much of computing does not depend on the size of the batch, by the measured steps of several sizes."""

from collections.abc import Sequence

import numpy as np

from jobs.models import Job, ThroughputPoint

__all__ = ["fixed_computing", "fixed_part"]

#: Fraction by which two sizes of a micro-batch differ at least, and steps from which a size counts in full.
_APART, _FULL_STEPS = 1.5, 50


def fixed_computing(job: Job) -> float | None:
    """Return the fraction of the job's computing that each batch takes, however small; None: not known."""
    newest = ThroughputPoint.objects.filter(job=job).order_by("-at").first()
    if newest is None:
        return None
    points = ThroughputPoint.objects.filter(job=job, gpu_model=newest.gpu_model)
    return fixed_part([(point.micro_batch, point.compute_seconds, point.steps) for point in points])


def fixed_part(points: Sequence[tuple[int, float, int]]) -> float | None:
    """Return the fraction of computing the most frequent micro-batch that does not depend on its samples.

    points: samples of a micro-batch, seconds to compute it, and number of steps. None: the sizes are too alike to tell.
    """
    sizes = [size for size, _, _ in points]
    if not points or max(sizes) < _APART * min(sizes):
        return None
    weights = np.sqrt([min(steps, _FULL_STEPS) for _, _, steps in points])
    per_sample, base = np.polyfit(sizes, [seconds for _, seconds, _ in points], 1, w=weights)
    usual = max(points, key=lambda point: point[2])[0]
    if base <= 0:
        return 0.0
    return float(base / (base + max(per_sample, 0.0) * usual))
