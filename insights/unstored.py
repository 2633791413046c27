"""Reported entries that could not be stored, for administrators and for monitoring."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from jobs.models import Journal, UnstoredEntry
from workers.models import Host

__all__ = ["Unstored", "unstored"]

#: Time for which an entry that was set aside is shown. The row stays.
_NEWS = timedelta(days=1)
#: Time within which an executor sends an entry again.
_TRIED_AGAIN = timedelta(minutes=2)
_MOST_SHOWN = 50


@dataclass(frozen=True)
class Unstored:
    """Entries of the last day that were set aside, the newest first; and entries that are being retried."""

    set_aside: list[UnstoredEntry]
    tried: list[UnstoredEntry]
    #: Hosts whose newest report could not be stored completely.
    hosts: list[Host]

    def __bool__(self) -> bool:
        return bool(self.set_aside or self.tried or self.hosts)

    @property
    def entries(self) -> list[UnstoredEntry]:
        return [*self.tried, *self.set_aside]


def unstored(now: datetime) -> Unstored:
    rows = list(_news(now)[:_MOST_SHOWN])
    hosts = Host.objects.filter(removed_at=None).exclude(report_problem="").order_by("name")
    return Unstored(
        [row for row in rows if row.set_aside_at is not None],
        [row for row in rows if row.set_aside_at is None],
        list(hosts),
    )


def _news(now: datetime) -> QuerySet[UnstoredEntry]:
    stored = Journal.objects.filter(name=OuterRef("journal"), number__gte=OuterRef("number"))
    tried = Q(set_aside_at=None, last_at__gt=now - _TRIED_AGAIN) & ~Exists(stored)
    rows = UnstoredEntry.objects.select_related("job").order_by("-pk")
    return rows.filter(Q(set_aside_at__gt=now - _NEWS) | tried)
