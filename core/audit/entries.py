"""Entries of the audit: one for each change by an administrator, or by an owner to an object that others use, too.

Changes that people make to their own trainings are in the trainings' history (`JobEvent`). An entry keeps only values
that differ, and never a secret, because every administrator can read it for as long as the database exists.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.utils import timezone

from core.models import AuditEntry
from core.text import storable

__all__ = ["Audited", "audit", "audit_all"]

_SECRET = re.compile(r"password|token|digest|secret")


@dataclass(frozen=True)
class Audited:
    """The object of a change, such as a host, with its id and display name; see `audit`."""

    key: object
    name: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def audit(
    actor: AbstractBaseUser | str,
    verb: str,
    *,
    kind: str,
    key: object,
    name: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record a change, within its transaction, so that both are stored or neither.

    actor: a user, or the name of the part of Tidepool that made the change. verb: in the past tense, such as "drained".
    kind, key, name: kind of the object, such as "host", its id, and its name.
    before, after: field -> value, as JSON can carry it. One of them alone describes a created or removed object. If
    both are given and equal, nothing is recorded; if neither is given, the verb says everything.
    """
    audit_all(actor, verb, kind, [Audited(key, name, before, after)])


def audit_all(actor: AbstractBaseUser | str, verb: str, kind: str, changed: Iterable[Audited]) -> None:
    """Record an entry for each changed object, as `audit` does, with as many queries as for one."""
    assert transaction.get_connection().in_atomic_block, "record it in the transaction of the change"
    who, now = actor if isinstance(actor, str) else actor.get_username(), timezone.now()
    entries = [AuditEntry(at=now, actor=who, verb=verb, kind=kind, **row) for one in changed if (row := _columns(one))]
    AuditEntry.objects.bulk_create(entries)


def _columns(one: Audited) -> dict[str, Any]:
    """Return the entry's columns about the changed object; {} if nothing changed."""
    old, new = _plain(one.before), _plain(one.after)
    assert not any(_SECRET.search(field) for field in (*old, *new)), "secrets are not recorded"
    if one.before is not None and one.after is not None:
        missing = object()
        changed = {field for field in {**old, **new} if old.get(field, missing) != new.get(field, missing)}
        if not changed:
            return {}
        old, new = ({field: row[field] for field in row if field in changed} for row in (old, new))
    return {"key": str(one.key), "name": storable(one.name)[:255], "before": old, "after": new}


def _plain(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the value as the database would return it."""
    plain: dict[str, Any] = storable(json.loads(json.dumps(dict(values or {}), cls=DjangoJSONEncoder)))
    return plain
