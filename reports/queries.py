"""Queries for reports, their open links, and the names that their blocks mention."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.utils import timezone

from core.errors import existing
from core.roles import Asking
from core.visibility import readable
from jobs.queries.jobs import visible_jobs
from reports.mentions import Mention, mentions_in
from reports.models import Report, ReportBlock, ShareLink
from workers.models import Host

__all__ = ["ends_at", "find_report", "mentions_of", "open_links", "own_reports", "reports", "visible_sources"]


def reports(user: Asking) -> QuerySet[Report]:
    """Return the reports that the user may read, with `block_count` and `is_public` (whether a public link is open)."""
    rows = readable(Report.objects.all(), user).select_related("owner")
    return rows.annotate(
        block_count=Count("blocks"), is_public=Exists(open_links(timezone.now()).filter(report=OuterRef("pk")))
    )


def own_reports(user: User) -> QuerySet[Report]:
    """Return the user's own reports, most recently changed first."""
    return Report.objects.filter(owner=user).order_by("-changed_at", "-pk")


def find_report(user: Asking, report_id: int) -> Report:
    return existing(reports(user).filter(pk=report_id).first(), f"report {report_id}")


def open_links(now: datetime) -> QuerySet[ShareLink]:
    """Return links that are neither expired nor withdrawn, within the site's present maximum lifetime."""
    oldest = now - timedelta(days=settings.TIDEPOOL_PUBLIC_REPORT_DAYS)
    links = ShareLink.objects.filter(withdrawn_at=None, expires_at__gt=now, created_at__gt=oldest)
    return links.filter(report__owner__is_active=True)


def ends_at(link: ShareLink) -> datetime:
    """Return the time when the link expires. The site may have lowered the maximum lifetime since it was made."""
    return min(link.expires_at, link.created_at + timedelta(days=settings.TIDEPOOL_PUBLIC_REPORT_DAYS))


def visible_sources(user: Asking, blocks: Iterable[ReportBlock]) -> set[int]:
    """Return the ids of the blocks' trainings that exist and that the user may see."""
    numbers = {number for block in blocks for number, _ in block.sources}
    return set(visible_jobs(user).filter(pk__in=numbers).values_list("pk", flat=True)) if numbers else set()


def mentions_of(report: Report, blocks: Iterable[ReportBlock]) -> list[Mention]:
    """Return the other users, hosts and paths that the report names."""
    users = User.objects.exclude(pk=report.owner_id).values_list("username", flat=True)
    hosts, rows = Host.objects.values_list("name", flat=True), list(blocks)
    return mentions_in([report.title, *_texts(rows)], set(users), set(hosts), set(_metrics(rows)))


def _metrics(blocks: Iterable[ReportBlock]) -> Iterable[str]:
    """Yield the names of metrics and parameters in charts and tables."""
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
