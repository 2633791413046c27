"""The list of the audit: its filters and its order, the same on the page, in the API and in a CSV file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from django.db.models import Q, QuerySet

from core.csv_text import Cell
from core.filters import ListFilter, MomentFilter, TextFilter, choice_filter, within
from core.keyset import KeysetPage, Order, every_row, keyset_page
from core.models import AuditEntry
from core.time import iso, parsed_moment

__all__ = ["COLUMNS", "PERIODS", "AuditFilter", "all_entries", "audit_page", "csv_row", "kinds"]

PERIODS = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "365d": timedelta(days=365)}
COLUMNS = ("at (UTC)", "actor", "verb", "kind", "id", "name", "before", "after")
_ORDER = Order("at", descending=True, parse=parsed_moment)


class AuditFilter(ListFilter):
    """Empty: everything."""

    actor = TextFilter("actor", help_text="Name of a user.")
    kind = TextFilter("kind", help_text="Such as user, host or instance group.")
    key = TextFilter("key", help_text="Id of one thing of that kind.")
    search = TextFilter(method="named", help_text="Part of its name, or of what was done.")
    within = choice_filter("There is no such period", PERIODS, method="lately")
    since = MomentFilter("at", "gte", help_text="A day or a moment.")
    until = MomentFilter("at", "lt", help_text="A day or a moment, which is left out itself.")

    class Meta:
        model = AuditEntry
        fields: list[str] = []

    def named(self, entries: QuerySet[AuditEntry], name: str, search: str) -> QuerySet[AuditEntry]:
        return entries.filter(Q(name__icontains=search) | Q(verb__icontains=search))

    def lately(self, entries: QuerySet[AuditEntry], name: str, period: str) -> QuerySet[AuditEntry]:
        return entries.filter(at__gte=within(PERIODS, period))


def audit_page(wanted: AuditFilter, given: Mapping[str, str], size: int) -> KeysetPage[AuditEntry]:
    """The page that `after` or `before` in an address asks for."""
    return keyset_page(wanted.of(AuditEntry.objects.all()), _ORDER, given, size)


def all_entries(wanted: AuditFilter) -> Iterator[AuditEntry]:
    """Every entry of the filter, read piece by piece."""
    return every_row(wanted.of(AuditEntry.objects.all()), _ORDER)


def kinds() -> list[str]:
    """Kinds of all that was ever changed."""
    return list(AuditEntry.objects.order_by("kind").values_list("kind", flat=True).distinct())


def csv_row(entry: AuditEntry) -> Sequence[Cell]:
    before, after = (json.dumps(values, ensure_ascii=False) if values else "" for values in (entry.before, entry.after))
    return (iso(entry.at), entry.actor, entry.verb, entry.kind, entry.key, entry.name, before, after)
