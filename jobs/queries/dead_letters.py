"""What hosts reported and could not be stored, for administrators and for monitoring."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from jobs.models import Journal, UnstoredEntry
from workers.models import Host

__all__ = ["Unstored", "unstored"]

#: What was set aside is news for so long; the row stays.
_NEWS = timedelta(days=1)
#: An executor sends an entry again within that time.
_TRIED_AGAIN = timedelta(minutes=2)
_MOST_SHOWN = 50


@dataclass(frozen=True)
class Unstored:
    """Of the last day: entries that are set aside, the newest first; and those that are tried again right now."""

    set_aside: list[UnstoredEntry]
    tried: list[UnstoredEntry]
    #: Whose newest report could not be stored as a whole.
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
