"""Counters and histograms since this process looked first, read from rows that are only ever added."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max, Model, OuterRef, QuerySet, Subquery
from prometheus_client import CollectorRegistry, Counter, Histogram

from jobs.models import AllocationPoint, JobEvent
from jobs.states import JobState

__all__ = ["History"]

#: Of rows with neighbouring ids a later one may be committed first: so many are looked at again.
_LOOK_BACK = 1000


@dataclass
class _NewRows:
    """Each row once, in whatever order they are committed."""

    rows: Callable[[], QuerySet[Any]]
    newest: int | None = None
    taken: set[int] = field(default_factory=set)

    def take(self) -> list[Any]:
        if self.newest is None:
            model: type[Model] = self.rows().model
            self.newest = model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0
            self.taken = set(range(self.newest - _LOOK_BACK, self.newest + 1))
            return []
        fresh = [row for row in self.rows().filter(pk__gt=self.newest - _LOOK_BACK) if row.pk not in self.taken]
        self.newest = max([self.newest, *(row.pk for row in fresh)])
        self.taken = {pk for pk in self.taken | {row.pk for row in fresh} if pk > self.newest - _LOOK_BACK}
        return fresh


class History:
    """Histograms that grow with each look. Every web process counts for itself, from its start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._starts = _NewRows(_starts)
        self._switches = _NewRows(_switches)
        self._waits = Histogram(
            "tidepool_queue_wait_seconds",
            "How long trainings had waited for GPUs when they got them, each time anew.",
            ["instance_group"],
            buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
            registry=registry,
        )
        self._pauses = Histogram(
            "tidepool_resize_pause_seconds",
            "How long trainings stood still while their GPUs changed.",
            buckets=(0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 15.0),
            registry=registry,
        )
        self._resizes = Counter(
            "tidepool_resizes", "Live changes of the GPUs of trainings, by reason.", ["reason"], registry=registry
        )

    def look(self) -> None:
        with self._lock:
            for start in self._starts.take():
                if start.queued_at is not None:
                    waited = (start.at - start.queued_at).total_seconds()
                    self._waits.labels(start.job.instance_group.name).observe(max(0.0, waited))
            for point in self._switches.take():
                self._pauses.observe(point.pause_ms / 1000)
                self._resizes.labels(point.reason_code).inc()


def _starts() -> QuerySet[Any]:
    queued = JobEvent.objects.filter(job=OuterRef("job"), seq__lt=OuterRef("seq"), new=JobState.PENDING)
    entered = queued.exclude(old=JobState.PENDING).order_by("-seq").values("at")[:1]
    starts = JobEvent.objects.filter(old=JobState.PENDING, new=JobState.STARTING).order_by("pk")
    return starts.select_related("job__instance_group").annotate(queued_at=Subquery(entered))


def _switches() -> QuerySet[AllocationPoint]:
    return AllocationPoint.objects.filter(pause_ms__isnull=False).order_by("pk")
