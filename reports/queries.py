"""Reports that a user may read, and what is in them."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.utils import timezone

from core.errors import NotFound
from core.roles import Asking
from core.visibility import readable
from jobs.queries.jobs import visible_jobs
from reports.models import Report, ReportBlock, ShareLink
from reports.names import Named, named_in
from workers.models import Host

__all__ = ["ends_at", "find_report", "named_of", "open_links", "own_reports", "reports", "sources_seen"]


def reports(user: Asking) -> QuerySet[Report]:
    """Those that the user may read, with their owners; `block_count`, and `is_public`: it has a link that is open."""
    rows = readable(Report.objects.all(), user).select_related("owner")
    return rows.annotate(
        block_count=Count("blocks"), is_public=Exists(open_links(timezone.now()).filter(report=OuterRef("pk")))
    )


def own_reports(user: User) -> QuerySet[Report]:
    """Those that the user adds to, the last changed first."""
    return Report.objects.filter(owner=user).order_by("-changed_at", "-pk")


def find_report(user: Asking, report_id: int) -> Report:
    report = reports(user).filter(pk=report_id).first()
    if report is None:
        raise NotFound(f"There is no report {report_id} that you may read: look it up in the list of reports.")
    return report


def open_links(now: datetime) -> QuerySet[ShareLink]:
    """Links that open their report now: neither ended nor withdrawn, and the site allows links that are so old."""
    oldest = now - timedelta(days=settings.TIDEPOOL_PUBLIC_REPORT_DAYS)
    links = ShareLink.objects.filter(withdrawn_at=None, expires_at__gt=now, created_at__gt=oldest)
    return links.filter(report__owner__is_active=True)


def ends_at(link: ShareLink) -> datetime:
    """Return when the link ends: the site may have shortened it since it was made."""
    return min(link.expires_at, link.created_at + timedelta(days=settings.TIDEPOOL_PUBLIC_REPORT_DAYS))


def sources_seen(user: Asking, blocks: Iterable[ReportBlock]) -> set[int]:
    """Return the numbers of those trainings of the blocks that are there, and that the user may see."""
    numbers = {number for block in blocks for number, _ in block.sources}
    return set(visible_jobs(user).filter(pk__in=numbers).values_list("pk", flat=True)) if numbers else set()


def named_of(report: Report, blocks: Iterable[ReportBlock]) -> list[Named]:
    """Return which other users, hosts and paths a reader of a public link would see named."""
    users = User.objects.exclude(pk=report.owner_id).values_list("username", flat=True)
    hosts, rows = Host.objects.values_list("name", flat=True), list(blocks)
    return named_in([report.title, *_texts(rows)], set(users), set(hosts), set(_metrics(rows)))


def _metrics(blocks: Iterable[ReportBlock]) -> Iterable[str]:
    """Names of metrics and parameters of the charts and tables."""
    for block in blocks:
        if block.data:
            yield block.title
        yield from (name for name, _, _ in block.data.get("rows", ()))
        yield from block.data.get("names", ())


def _texts(blocks: Iterable[ReportBlock]) -> Iterable[str]:
    for block in blocks:
        yield from (block.title, block.text)
        yield from (name for _, name in block.sources)
        for name, values, _ in block.data.get("rows", ()):
            yield from (name, *values)
        yield from block.data.get("names", ())
