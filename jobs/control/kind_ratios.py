"""Memory of how much faster one GPU model is than another: written with profiles, read with each snapshot."""

from collections.abc import Collection
from datetime import datetime, timedelta

from jobs.models import Job, KindSpeedRatio
from scheduling.policies.kind_ratios import MeasuredRatio, ratios_of
from scheduling.policies.speedups import goodput_at_one
from scheduling.snapshot import ProfileView

__all__ = ["REMEMBERED_FOR", "remember", "remembered"]

#: Time for which a ratio counts after the training's last measurement.
REMEMBERED_FOR = timedelta(days=30)
#: Number of newest trainings of a code that are kept.
MOST_OF_A_CODE = 100
#: Number of newest ratios, of any code, that a snapshot reads.
_MOST_OF_ALL = 1000
_COLUMNS = ("pk", "job", "code", "kind", "base", "ratio")


def remember(job: Job, profile: ProfileView, at: datetime) -> None:
    """Store the ratios between the GPU models that the job was measured on, and delete old ones."""
    if len(profile.parameters) < 2:
        return
    code = job.model.digest
    found = ratios_of(job.pk, code, goodput_at_one(profile))
    rows = [
        KindSpeedRatio(job=job, code=one.code, kind=one.kind, base=one.base, ratio=one.ratio, at=at) for one in found
    ]
    KindSpeedRatio.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["job", "kind", "base"], update_fields=["code", "ratio", "at"]
    )
    KindSpeedRatio.objects.filter(at__lt=at - REMEMBERED_FOR).delete()
    for row in rows:
        kept = KindSpeedRatio.objects.filter(code=code, kind=row.kind, base=row.base).values_list("pk", flat=True)
        KindSpeedRatio.objects.filter(pk__in=list(kept[MOST_OF_A_CODE : 2 * MOST_OF_A_CODE])).delete()


def remembered(codes: Collection[str], now: datetime) -> list[MeasuredRatio]:
    """Return the ratios that count for jobs of these codes: all of their codes, and the newest of any. Two queries."""
    known = KindSpeedRatio.objects.filter(at__gte=now - REMEMBERED_FOR, at__lte=now)
    rows = {row[0]: row for row in known.values_list(*_COLUMNS)[:_MOST_OF_ALL]}
    rows |= {row[0]: row for row in known.filter(code__in=sorted(codes)).order_by().values_list(*_COLUMNS)}
    # A training that was deleted has no number; any that no job has keeps its ratios apart.
    return [MeasuredRatio(-pk if job is None else job, *rest) for pk, job, *rest in rows.values()]
