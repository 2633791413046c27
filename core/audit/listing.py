"""The audit as the page, the API and the CSV file show it: the same filters, the newest first, page by page by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.utils import timezone

from core.csv_text import Cell
from core.errors import UserError
from core.keyset import AFTER, BEFORE, KeysetPage, Order, keyset_page, parsed_cursor
from core.models import AuditEntry
from core.references import is_storable
from core.time import iso, parsed_moment

__all__ = ["COLUMNS", "PERIODS", "AuditFilter", "all_entries", "audit_page", "csv_row", "kinds", "parsed_filter"]

PERIODS = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "365d": timedelta(days=365)}
COLUMNS = ("at (UTC)", "actor", "verb", "kind", "id", "name", "before", "after")
_ORDER = Order("at", descending=True, parse=parsed_moment)
_CHUNK = 1000


@dataclass(frozen=True)
class AuditFilter:
    """Empty: everything."""

    actor: str = ""
    kind: str = ""
    #: Id of a thing of that kind.
    key: str = ""
    #: Part of a thing's name, or of what was done.
    search: str = ""
    #: One of PERIODS.
    within: str = ""
    since: datetime | None = None
    until: datetime | None = None
    #: The parameters that said so, without empty ones.
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return urlencode(self.given)


_PARAMETERS = tuple(name for name in AuditFilter.__dataclass_fields__ if name != "given")
_MOMENTS = ("since", "until")


def parsed_filter(given: Mapping[str, str]) -> AuditFilter:
    """The filter of an address's parameters, others left out; UserError with what is wrong with each."""
    texts = {name: text for name in _PARAMETERS if (text := given.get(name, "").strip())}
    values: dict[str, Any] = {}
    problems: dict[str, list[str]] = {}
    for name, text in texts.items():
        try:
            values[name] = _parsed(name, text)
        except ValueError as error:
            problems[name] = [str(error)]
    if problems:
        raise UserError(next(iter(problems.values()))[0], fields=problems)
    return AuditFilter(**values, given=texts)


def audit_page(wanted: AuditFilter, given: Mapping[str, str], size: int) -> KeysetPage[AuditEntry]:
    """The page that `after` or `before` in an address asks for."""
    cursor = parsed_cursor(_ORDER, given.get(AFTER, ""), given.get(BEFORE, ""))
    return keyset_page(_entries(wanted), AuditEntry.objects.all(), _ORDER, cursor, size)


def all_entries(wanted: AuditFilter) -> Iterator[AuditEntry]:
    """Every entry of the filter, read piece by piece."""
    cursor = None
    while True:
        page = keyset_page(_entries(wanted), AuditEntry.objects.all(), _ORDER, cursor, _CHUNK)
        yield from page.rows
        if page.next is None:
            return
        cursor = parsed_cursor(_ORDER, page.next, "")


def kinds() -> list[str]:
    """Of all that was ever changed."""
    return list(AuditEntry.objects.order_by("kind").values_list("kind", flat=True).distinct())


def csv_row(entry: AuditEntry) -> Sequence[Cell]:
    before, after = (json.dumps(values, ensure_ascii=False) if values else "" for values in (entry.before, entry.after))
    return (iso(entry.at), entry.actor, entry.verb, entry.kind, entry.key, entry.name, before, after)


def _parsed(name: str, text: str) -> Any:
    if name in _MOMENTS:
        try:
            return parsed_moment(text)
        except (ValueError, OverflowError):
            raise ValueError(
                "This is no moment: write a day as 2026-03-01, or a moment as 2026-03-01T12:00Z."
            ) from None
    if name == "within" and text not in PERIODS:
        raise ValueError(f"There is no such period: take one of {', '.join(PERIODS)}.")
    if not is_storable(text):
        raise ValueError("This has characters that no name has: leave them out.")
    return text


def _entries(wanted: AuditFilter) -> QuerySet[AuditEntry]:
    found = Q(**{name: value for name in ("actor", "kind", "key") if (value := getattr(wanted, name))})
    if wanted.search:
        found &= Q(name__icontains=wanted.search) | Q(verb__icontains=wanted.search)
    if wanted.within:
        found &= Q(at__gte=timezone.now() - PERIODS[wanted.within])
    if wanted.since:
        found &= Q(at__gte=wanted.since)
    if wanted.until:
        found &= Q(at__lt=wanted.until)
    return AuditEntry.objects.filter(found)
