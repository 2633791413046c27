"""The audit's list, the same on the page, in the API and in a CSV file, and its entries in words."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet

from core.downloads import Cell
from core.filters import ListFilter, MomentFilter, TextFilter, choice_filter, within
from core.keyset import KeysetPage, Order, every_row, keyset_page
from core.models import AuditEntry
from core.time import iso, parsed_moment

__all__ = [
    "COLUMNS",
    "PERIODS",
    "AuditFilter",
    "ChangedValue",
    "all_entries",
    "audit_page",
    "changed_values",
    "csv_row",
    "in_words",
    "kinds",
]

PERIODS = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "365d": timedelta(days=365)}
COLUMNS = ("at (UTC)", "actor", "verb", "kind", "id", "name", "before", "after")
#: Largest length of a value on the page; the CSV file and the API have all of it.
_LONGEST = 200
_ORDER = Order("at", descending=True, parse=parsed_moment)


class AuditFilter(ListFilter):
    """Filter of entries; empty for all."""

    actor = TextFilter("actor", help_text="Name of a user.")
    kind = TextFilter("kind", help_text="Such as user, host or instance group.")
    key = TextFilter("key", help_text="Id of one thing of that kind.")
    search = TextFilter(method="named", help_text="Part of the object's name, or of the action.")
    within = choice_filter("Unknown period", PERIODS, method="lately")
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
    """Return the page that `after` or `before` in an address selects."""
    return keyset_page(wanted.of(AuditEntry.objects.all()), _ORDER, given, size)


def all_entries(wanted: AuditFilter) -> Iterator[AuditEntry]:
    """Yield every entry of the filter, read page by page."""
    return every_row(wanted.of(AuditEntry.objects.all()), _ORDER)


def kinds() -> list[str]:
    """Return the kinds of all objects that were ever changed."""
    return list(AuditEntry.objects.order_by("kind").values_list("kind", flat=True).distinct())


def csv_row(entry: AuditEntry) -> Sequence[Cell]:
    before, after = (json.dumps(values, ensure_ascii=False) if values else "" for values in (entry.before, entry.after))
    return (iso(entry.at), entry.actor, entry.verb, entry.kind, entry.key, entry.name, before, after)


@dataclass(frozen=True)
class ChangedValue:
    """Values of one field; None for a value that did not exist."""

    field: str
    before: str | None
    after: str | None


def changed_values(entry: AuditEntry) -> list[ChangedValue]:
    return [
        _lists(field, entry.before[field], entry.after[field])
        if isinstance(entry.before.get(field), list) and isinstance(entry.after.get(field), list)
        else ChangedValue(_label(field), _value(entry.before, field), _value(entry.after, field))
        for field in {**entry.before, **entry.after}
    ]


def in_words(value: Any) -> str:
    match value:
        case None | "" | [] | {}:
            return "nothing"
        case True | False:
            return "yes" if value else "no"
        case list():
            return ", ".join(in_words(item) for item in value)
        case dict():
            return ", ".join(f"{_label(key)} {in_words(item)}" for key, item in value.items())
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)


def _lists(field: str, before: list[Any], after: list[Any]) -> ChangedValue:
    """Return only the removed and added items of lists, such as one added member among a hundred."""
    gone, new = [item for item in before if item not in after], [item for item in after if item not in before]
    if not gone and not new:  # another order
        gone, new = before, after
    return ChangedValue(_label(field), _cut(in_words(gone)) if gone else None, _cut(in_words(new)) if new else None)


def _value(values: dict[str, Any], field: str) -> str | None:
    return _cut(in_words(values[field])) if field in values else None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _label(field: str) -> str:
    return field.replace("_", " ")
