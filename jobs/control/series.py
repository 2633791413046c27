"""Rows of metrics: all points of a short curve, and of a long one the first, last, least and greatest of each span.

`metrics.jsonl` in the job's folder has every step (`jobs.files.exact_metrics`). `JobRun.series` holds, for each metric,
`[k, rows]`: its spans have 2**k steps, and it has at most that many rows. It is reset to {} where curves start
anew; while it says that rows lack steps, exact values come from the file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from core.row_updates import upsert_rows
from jobs.models import Job, MetricPoint

__all__ = ["ENDED_ROWS", "KEPT_ROWS", "MOST_ROWS", "Point", "store_points", "thin_ended", "thinned"]

#: Number of rows at which a metric is thinned, and the largest number that is left then.
MOST_ROWS = 4000
KEPT_ROWS = 2000
#: Largest number of rows that a metric keeps once its training has been over for long.
ENDED_ROWS = 500
_DELETED_AT_ONCE = 500


class Point(NamedTuple):
    """Value of a metric after a step: what a row of `MetricPoint` holds, which takes longer to make."""

    job_id: int
    name: str
    step: int
    epoch: int
    value: float | None
    at: datetime
    is_even: bool = True
    #: Key of its row; 0: it has none yet.
    pk: int = 0


def thinned(points: Iterable[Point], k: int) -> list[tuple[Point, bool]]:
    """Return the points to keep, in order of step, each with whether it is the first of its span. Pure.

    A span has 2**k steps; its first, last, least and greatest points are kept. A gap (None) counts as least.
    """
    kept: list[tuple[Point, bool]] = []
    for _, span in groupby(sorted(points, key=lambda point: point.step), key=lambda point: point.step >> k):
        of_span = list(span)
        least = min(of_span, key=lambda point: (point.value is not None, point.value or 0.0))
        greatest = max(of_span, key=lambda point: (point.value is not None, point.value or 0.0))
        chosen = {point.step: point for point in (of_span[0], of_span[-1], least, greatest)}
        kept += [(chosen[step], step == of_span[0].step) for step in sorted(chosen)]
    return kept


def store_points(found: Mapping[Job, Sequence[Point]]) -> dict[Job, dict[str, Any]]:
    """Store points of jobs, which are locked; returns the new `JobRun.series` of each.

    Steps repeat after a restart from a checkpoint: the newer value stays.
    """
    tails = _tails(found)
    series, written, gone = {}, list[Point](), list[int]()
    for job, points in found.items():
        series[job] = dict(job.run.series)
        by_name: dict[str, list[Point]] = defaultdict(list)
        for point in points:
            by_name[point.name].append(point)
        for name, fresh in by_name.items():
            k, rows = series[job].get(name, (0, 0))
            fresh, old = (_merged(tails.get((job.pk, name), ()), fresh, k)) if k else (fresh, [])
            written += fresh
            gone += old
            series[job][name] = [k, rows + len(fresh) - len(old)]
    for first in range(0, len(gone), _DELETED_AT_ONCE):
        MetricPoint.objects.filter(pk__in=gone[first : first + _DELETED_AT_ONCE]).delete()
    upsert_rows(MetricPoint, written, ["job", "name", "step"], ["epoch", "value", "at", "is_even"])
    for job, of_job in series.items():
        for name, (k, rows) in of_job.items():
            if rows >= MOST_ROWS:
                of_job[name] = _grown(job, name, k, MOST_ROWS, KEPT_ROWS)
    return series


def thin_ended(job: Job) -> dict[str, Any]:
    """Thin the curves of a job that is over, and locked; returns its new `JobRun.series`."""
    return {name: _grown(job, name, k, ENDED_ROWS + 1, ENDED_ROWS) for name, (k, _) in job.run.series.items()}


def _tails(found: Mapping[Job, Sequence[Point]]) -> dict[tuple[int, str], list[Point]]:
    """Return the rows in those spans of thinned metrics to which new points belong, by job and name."""
    spans = Q()
    for job, points in found.items():
        steps: dict[tuple[int, str], list[int]] = defaultdict(list)
        for point in points:
            if k := job.run.series.get(point.name, (0, 0))[0]:
                steps[k, point.name].append(point.step)
        for (k, name), numbers in steps.items():
            start, end = min(numbers) >> k << k, (max(numbers) >> k) + 1 << k
            spans |= Q(job=job, name=name, step__gte=start, step__lt=end)
    tails: dict[tuple[int, str], list[Point]] = defaultdict(list)
    if spans:
        for row in _rows(MetricPoint.objects.filter(spans).order_by()):
            tails[row.job_id, row.name].append(row)
    return tails


def _merged(rows: Sequence[Point], fresh: Sequence[Point], k: int) -> tuple[list[Point], list[int]]:
    """Return the points to write and the keys of the rows to delete, so that the spans of the points are thinned."""
    by_step = {row.step: row for row in rows} | {point.step: point for point in fresh}
    written, kept = [], set[int]()
    for point, is_first in thinned(by_step.values(), k):
        if point.pk:
            kept.add(point.pk)
        if not point.pk or point.is_even != is_first:
            written.append(point._replace(is_even=is_first, pk=0))
    steps = {point.step for point in written}  # their rows are overwritten
    return written, [row.pk for row in rows if row.pk not in kept and row.step not in steps]


def _rows(found: QuerySet[MetricPoint]) -> Iterator[Point]:
    return (Point(*row) for row in found.values_list(*Point._fields))


def _grown(job: Job, name: str, k: int, most: int, kept_rows: int) -> list[int]:
    """Thin a metric of at least `most` rows to spans so long that `kept_rows` are left; returns its new `[k, rows]`."""
    of_name = MetricPoint.objects.filter(job=job, name=name)
    rows = list(_rows(of_name.order_by("step")))
    if len(rows) < most:  # steps have repeated
        return [k, len(rows)]
    kept = thinned(rows, k)
    while len(kept) > kept_rows:
        k += 1
        kept = thinned((row for row, _ in kept), k)
    keys = {row.pk for row, _ in kept}
    gone = [row.pk for row in rows if row.pk not in keys]
    uneven = [row.pk for row, is_first in kept if row.is_even and not is_first]
    for first in range(0, len(gone), _DELETED_AT_ONCE):
        MetricPoint.objects.filter(pk__in=gone[first : first + _DELETED_AT_ONCE]).delete()
    for first in range(0, len(uneven), _DELETED_AT_ONCE):
        MetricPoint.objects.filter(pk__in=uneven[first : first + _DELETED_AT_ONCE]).update(is_even=False)
    return [k, len(kept)]
