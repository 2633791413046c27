"""Storage of step times that ranks measure, and fits of the model that predicts a job's speed at other sizes."""

import logging
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tidepool import protocol
from tidepool.goodput.model import Point, ThroughputParameters
from tidepool.profile_checks import why_batch_refused, why_refused
from tidepool.protocol import to_json

from core.process import fitting_alone
from jobs.control.goodput_inputs import profile_of
from jobs.control.kind_ratios import remember
from jobs.control.transition import Why, change, record
from jobs.messages import message
from jobs.models import AllocationPoint, Job, JobProfile, SlotClaim, ThroughputPoint
from jobs.states import Reason

__all__ = ["refuse_micro_batch", "store"]

logger = logging.getLogger(__name__)

#: Number of newest shapes kept per job: each fit reads them all.
MOST_POINTS = 64
_MEASURED = ("compute_seconds", "step_seconds", "steps", "at")
#: Numbers of newest changes and claims whose seconds count.
_CHANGES, _CLAIMS = 5, 16


def store(job: Job, told: protocol.Profiled) -> None:
    """Store plausible points and fit the model again. Points of several ranks on mixed GPU models are dropped."""
    claims = SlotClaim.objects.kept().filter(job=job).order_by()
    kinds = list(claims.values_list("gpu_model", flat=True).distinct())
    is_mixed = len(kinds) > 1
    believed = [times for times in told.times if not why_refused(times) and (times.ranks == 1 or not is_mixed)]
    adapted = told.adapted
    if adapted is not None and (why := why_batch_refused(adapted, told.step)):
        logger.warning("job=%s: dropped an implausible batch: %s", job.pk, why)
        adapted = None
    if not (believed or adapted) or not told.batch_size:
        logger.warning("job=%s: dropped a profile without plausible points", job.pk)
        return
    _store_points(job, believed, datetime.fromtimestamp(told.at, UTC))
    profile = JobProfile.objects.filter(job=job).first() or JobProfile()
    profile.job, profile.batch_size, profile.at = job, told.batch_size, datetime.fromtimestamp(told.at, UTC)
    profile.most_micro_batch = told.most_micro_batch
    if adapted is not None:
        _adapt(profile, adapted, told.step)
    most = told.most_micro_batch if adapted is None else adapted.most_micro_batch
    if most and len(kinds) == 1:
        profile.micro_batches = {**profile.micro_batches, kinds[0]: most}
    _update_profile(profile)
    found = profile_of(job.pk)
    assert found is not None
    remember(job, found, profile.at)


def _adapt(profile: JobProfile, adapted: protocol.AdaptedBatch, step: int) -> None:
    was_pinned = profile.adapted is not None and profile.adapted["pinned"]
    if adapted.pinned and not was_pinned:
        record(profile.job, Why(Reason.BATCH_PINNED, message("batch_pinned", batch_size=adapted.submitted), "executor"))
    profile.adapted, profile.worth = to_json(adapted), adapted.progress / step


def refuse_micro_batch(job: Job, kind: str, samples: int) -> None:
    """Record that a micro-batch did not fit a GPU model's memory: the next attempt halves it."""
    limits = job.run.micro_batch_limits
    if limits.get(kind, samples) < samples:
        return  # reported by another rank already
    limit = samples // 2
    change(job, micro_batch_limits={**limits, kind: limit})
    why = message("batch_refused", kind=kind, samples=samples, limit=limit)
    record(job, Why(Reason.OUT_OF_MEMORY, why, "executor"))


def _store_points(job: Job, told: Iterable[protocol.StepTimes], at: datetime) -> None:
    points = {
        (times.kind, times.hosts, times.ranks, times.batch): ThroughputPoint(
            job=job,
            gpu_model=times.kind,
            hosts=times.hosts,
            ranks=times.ranks,
            micro_batch=times.batch,
            compute_seconds=times.compute_seconds,
            step_seconds=times.step_seconds,
            steps=times.steps,
            at=at,
        )
        for times in told
    }
    ThroughputPoint.objects.bulk_create(
        points.values(),
        update_conflicts=True,
        unique_fields=["job", "gpu_model", "hosts", "ranks", "micro_batch"],
        update_fields=_MEASURED,
    )
    kept = job.throughput.order_by("-at", "-pk").values_list("pk", flat=True)
    job.throughput.filter(pk__in=list(kept[MOST_POINTS : 2 * MOST_POINTS])).delete()


def _update_profile(profile: JobProfile) -> None:
    job = profile.job
    by_kind: dict[str, list[Point]] = defaultdict(list)
    for point in job.throughput.all():
        size = point.hosts, point.ranks
        by_kind[point.gpu_model].append(
            Point(*size, point.micro_batch, point.compute_seconds, point.step_seconds, point.steps)
        )
    profile.parameters = {
        kind: fitted for kind, points in by_kind.items() if (fitted := _fitted(points, profile.parameters.get(kind)))
    }
    profile.largest_ranks = max((point.ranks for points in by_kind.values() for point in points), default=1)
    profile.points = sum(len(points) for points in by_kind.values())
    profile.pause_seconds, profile.start_seconds = _pause_seconds(job), _start_seconds(job)
    profile.revision += 1
    profile.save()


def _fitted(points: list[Point], before: dict[str, float] | None) -> dict[str, Any] | None:
    """Return the parameters fitted to these points; None if no parameters describe them."""
    from tidepool.goodput.fit import fit  # imports scipy, which only the fitting process needs

    with fitting_alone():
        found = fit(points, ThroughputParameters(**before) if before else None)
    return asdict(found.parameters) if found.is_trusted else None


def _pause_seconds(job: Job) -> float | None:
    """Return the median pause of the newest resizes, in seconds."""
    changes = AllocationPoint.objects.filter(job=job, pause_ms__gt=0).order_by("-at", "-pk")
    pauses = [ms for ms in changes.values_list("pause_ms", flat=True)[:_CHANGES] if ms is not None]
    return statistics.median(pauses) / 1000 if pauses else None


def _start_seconds(job: Job) -> float | None:
    """Return the median time from a claim to the first step of its rank, over the newest claims."""
    begun = SlotClaim.objects.filter(job=job, trains_from__isnull=False).order_by("-claimed_at", "-pk")
    times = begun.values_list("claimed_at", "trains_from")[:_CLAIMS]
    seconds = [(trains - claimed).total_seconds() for claimed, trains in times if trains is not None]
    return max(0.0, statistics.median(seconds)) if seconds else None
