"""Inputs of the goodput policy besides a job's limits: speed profiles, GPU time so far, and current targets."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F, Sum
from tidepool.goodput.model import Bounds, ThroughputParameters
from tidepool.profile_checks import bounds_of, noise_of
from tidepool.protocol import AdaptedBatch, from_json

from jobs.models import Job, SlotClaim
from jobs.states import ACTIVE
from scheduling.snapshot import JobView, ProfileView

__all__ = ["profile_of", "with_measures"]

_COLUMNS = (
    "pk", "model__digest", "run__target_slots", "run__target_kind", "run__attempt", "run__generation",
    "run__step", "run__progress", "profile__batch_size",
    "profile__parameters", "profile__largest_ranks", "profile__pause_seconds", "profile__points", "profile__revision",
    "profile__adapted", "profile__worth", "profile__most_micro_batch", "profile__micro_batches",
    "run__micro_batch_limits", "profile__start_seconds",
)  # fmt: skip


def with_measures(
    views: Iterable[JobView], groups: Collection[str], open_since: Mapping[int, Collection[datetime]], now: datetime
) -> tuple[JobView, ...]:
    """Return the jobs, with measurements for those of `groups`. Two queries, or none without such groups.

    open_since: job -> times since which it holds each of its slots.
    """
    if not groups:
        return tuple(views)
    jobs = Job.objects.filter(
        state__in=sorted(ACTIVE), finished_at__isnull=True, instance_group__name__in=sorted(groups)
    )
    used = _used_before(jobs.values_list("pk", flat=True).order_by())
    for job, since in open_since.items():
        used[job] += sum((max(now - at, timedelta()) for at in since), timedelta())
    known = {row[0]: row[1:] for row in jobs.order_by().values_list(*_COLUMNS)}
    return tuple(_measured(view, used[view.id], *known[view.id]) if view.id in known else view for view in views)


def profile_of(job: int) -> ProfileView | None:
    """Return the profile of one job, finished or not; None if nothing was measured."""
    _, _, _, _, _, _, step, progress, *row = Job.objects.order_by().values_list(*_COLUMNS).get(pk=job)
    return _profile(step, progress, *row) if row[0] is not None else None


def _used_before(jobs: Any) -> defaultdict[int, timedelta]:
    """Return job -> GPU time of slots that it has released."""
    held = ExpressionWrapper(F("released_at") - F("claimed_at"), output_field=DurationField())
    rows = SlotClaim.objects.filter(job__in=jobs, released_at__isnull=False).order_by()
    return defaultdict(timedelta, rows.values("job").annotate(held=Sum(held)).values_list("job", "held"))


def _measured(
    view: JobView,
    used: timedelta,
    code: str,
    target: int,
    kind: str,
    attempt: int,
    generation: int,
    step: int,
    progress: float | None,
    *row: Any,
) -> JobView:
    profile = _profile(step, progress, *row) if row[0] is not None else None
    return replace(
        view,
        code=code,
        target=target,
        target_kind=kind or None,
        gpu_seconds=used.total_seconds(),
        changes=max(0, attempt + generation - 2),
        profile=profile,
    )


def _profile(
    step: int,
    progress: float | None,
    batch_size: int,
    parameters: Mapping[str, Mapping[str, float]],
    largest_ranks: int,
    pause_seconds: float | None,
    points: int,
    revision: int,
    told: Mapping[str, Any] | None,
    worth: float,
    most_micro_batch: int,
    micro_batches: Mapping[str, int],
    limits: Mapping[str, int],
    start_seconds: float | None,
) -> ProfileView:
    adapted = from_json(AdaptedBatch, told) if told is not None else None
    return ProfileView(
        bounds=bounds_of(adapted)
        if adapted is not None
        else Bounds(batch_size, max_micro_batch=most_micro_batch or None),
        noise=noise_of(adapted) if adapted is not None else None,
        parameters={kind: ThroughputParameters(**fitted) for kind, fitted in parameters.items()},
        micro_batches={**micro_batches, **limits},
        largest_ranks=largest_ranks,
        remaining_steps=worth * step * (1 - progress) / progress if step and progress else None,
        done_steps=worth * step,
        pause_seconds=1.0 if pause_seconds is None else pause_seconds,
        start_seconds=start_seconds or 0.0,
        restart_seconds=start_seconds or 0.0,
        points=points,
        revision=revision,
    )
