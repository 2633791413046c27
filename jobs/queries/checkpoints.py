"""The list of checkpoints that a user may see, shared by the page and the API."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery, Sum
from django_filters import NumberFilter

from core.filters import ListFilter, TextFilter, choice_filter
from core.keyset import KeysetPage, Order, keyset_page
from core.roles import Asking, is_cluster_admin
from core.time import parsed_moment
from jobs.files.exact_metrics import has_exact_values, newest_values
from jobs.models import Checkpoint, DiskUse, MetricPoint

__all__ = ["CheckpointFilter", "checkpoint_page", "totals", "visible_checkpoints", "with_metric"]

_ORDER = Order("created_at", descending=True, parse=parsed_moment)
_USUAL_METRIC = "loss"


class CheckpointFilter(ListFilter):
    """Filter of checkpoints. An empty one matches all, the newest first."""

    job = NumberFilter("job", min_value=1, max_value=2**63 - 1, help_text="Number of a training.")
    owner = TextFilter("job__owner__username", help_text="User name.")
    model = TextFilter("job__model__model__name", help_text="Name.")
    kept = choice_filter("Say", ["yes", "no"], method="that_are_kept", help_text="Kept beyond the usual number.")
    metric = TextFilter(method="all_of_them", help_text="Metric shown at each checkpoint's step; default: loss.")

    class Meta:
        model = Checkpoint
        fields: list[str] = []

    @property
    def shown_metric(self) -> str:
        return self.values["metric"] or _USUAL_METRIC

    def that_are_kept(self, rows: QuerySet[Checkpoint], name: str, kept: str) -> QuerySet[Checkpoint]:
        return rows.filter(kept=kept == "yes")

    def all_of_them(self, rows: QuerySet[Checkpoint], name: str, metric: str) -> QuerySet[Checkpoint]:
        """Return all rows: the metric does not filter, it is only shown."""
        return rows


def visible_checkpoints(user: Asking) -> QuerySet[Checkpoint]:
    """Return the user's checkpoints, for staff all of them, joined with the rows that lists show."""
    rows = Checkpoint.objects.select_related("job__owner", "job__run", "job__model__model", "job__dataset__dataset")
    rows = rows.prefetch_related("versions__version__model")
    if is_cluster_admin(user):
        return rows
    return rows.filter(job__owner_id=user.pk) if user.pk else rows.none()


def with_metric(rows: QuerySet[Checkpoint], metric: str) -> QuerySet[Checkpoint]:
    """Add `metric`: the newest value of a metric up to the checkpoint's step."""
    points = MetricPoint.objects.filter(job=OuterRef("job"), name=metric, step__lte=OuterRef("step"))
    return rows.annotate(metric=Subquery(points.order_by("-step").values("value")[:1]))


def checkpoint_page(
    user: Asking, wanted: CheckpointFilter, given: Mapping[str, str], size: int
) -> KeysetPage[Checkpoint]:
    rows = wanted.of(visible_checkpoints(user))
    page = keyset_page(with_metric(rows, wanted.shown_metric), _ORDER, given, size)
    _take_exact(page.rows, wanted.shown_metric)
    return page


def _take_exact(rows: Iterable[Checkpoint], metric: str) -> None:
    """Replace `metric` of checkpoints whose training has been so long that its rows lack steps."""
    by_job: dict[int, list[Checkpoint]] = defaultdict(list)
    for row in rows:
        if has_exact_values(row.job, metric):
            by_job[row.job_id].append(row)
    for of_job in by_job.values():
        values = newest_values(of_job[0].job, metric, {row.step for row in of_job})
        for row in of_job:
            row.metric = values.get(row.step)  # type: ignore[attr-defined]  # of `with_metric`


def totals(user: Asking) -> list[dict[str, Any]]:
    """Return `{owner, count, size_bytes, kept_bytes, disk_bytes}` per user, the largest total first."""
    rows = (
        visible_checkpoints(user).select_related(None).prefetch_related(None).order_by().values("job__owner__username")
    )
    kept = Sum("size_bytes", filter=Q(kept=True), default=0)
    found = [*rows.annotate(count=Count("pk"), total=Sum("size_bytes"), kept_bytes=kept)]
    owners = [row["job__owner__username"] for row in found]
    measured = DiskUse.objects.filter(job__owner__username__in=owners).values_list("job__owner__username").order_by()
    disk = dict(measured.annotate(Sum("size_bytes")))
    return [
        {
            "owner": row["job__owner__username"],
            "count": row["count"],
            "size_bytes": row["total"],
            "kept_bytes": row["kept_bytes"],
            "disk_bytes": disk.get(row["job__owner__username"]),
        }
        for row in sorted(found, key=lambda row: (-row["total"], row["job__owner__username"]))
    ]
