"""An entry of the audit in words: what was changed, from what, to what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from core.models import AuditEntry

__all__ = ["ChangedValue", "changed_values", "in_words"]

#: Longer ones are cut: the whole is in the CSV file and in the API's answer.
_LONGEST = 200


@dataclass(frozen=True)
class ChangedValue:
    """One field. None: it was not there."""

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
    """Of lists only what went and what came: of a hundred members one was added."""
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
