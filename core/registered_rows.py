"""Rows that people register by name, with owner and numbered versions: datasets, models and their templates."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max, Model, OuterRef, Prefetch, ProtectedError, QuerySet, Subquery

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed
from core.roles import Asking, Owned, may_edit

__all__ = ["delete_named", "in_words", "kept_if_used", "refuse_foreign", "store_version", "with_latest"]

Row = TypeVar("Row", bound=Model)
#: Verbose name of a model -> one and several in sentences, where they differ.
_WORDS = {"job": ("training", "trainings")}
Refusal = Callable[[Collection[Any]], str]


class Named(Owned, Protocol):
    pk: Any
    name: str
    owner: Any

    def delete(self) -> Any: ...


def with_latest(rows: QuerySet[Row], versions: QuerySet[Any], parent: str) -> QuerySet[Row]:
    """Return the rows with their owners; `latest` is a list with the newest version.

    parent: the versions' foreign key to the rows.
    """
    newest = versions.filter(**{parent: OuterRef(parent)}).order_by("-number")
    latest = versions.filter(pk=Subquery(newest.values("pk")[:1]))
    return rows.select_related("owner").prefetch_related(Prefetch("versions", latest, to_attr="latest"))


def refuse_foreign(user: User, row: Named | None, what: str) -> None:
    """Refuse a name that belongs to somebody else: only its owner and administrators may register more under it."""
    if row is not None and not may_edit(user, row):
        raise NotAllowed(
            f"The {what} {row.name!r} belongs to another user: choose another name.",
            fields={"name": ["This name is taken."]},
        )


@transaction.atomic
def store_version(
    owner: User,
    version: Any,
    rows: QuerySet[Any],
    name: str,
    what: str,
    new: Mapping[str, str] | None = None,
    /,
    **described: str,
) -> None:
    """Store the next version of the row with this name, and update its description; `new` is for a new row only."""
    first = {"owner": owner, **described, **(new or {})}
    row, _ = rows.update_or_create(name=name, defaults=described, create_defaults=first)
    refuse_foreign(owner, row, what)
    version.number = (row.versions.aggregate(newest=Max("number"))["newest"] or 0) + 1
    row.versions.add(version, bulk=False)


def delete_named(user: User, row: Named, what: str, refusal: Refusal) -> None:
    """Delete a row with its versions in the caller's transaction, unless they are in use: see `kept_if_used`."""
    number = row.pk
    with kept_if_used(refusal):
        row.delete()
    audit(user, "deleted", kind=what, key=number, name=row.name, before={"owner": row.owner.get_username()})


def in_words(rows: Collection[Any], viewer: Asking) -> str:
    """Return rows of any kinds, such as "the study Widths (3) and 2 trainings"; those of others without their names."""
    kinds: dict[type[Model], list[Any]] = {}
    for row in rows:
        kinds.setdefault(type(row), []).append(row)
    return " and ".join(_of_a_kind(kind, found, viewer) for kind, found in kinds.items())


def _of_a_kind(kind: type[Model], rows: Sequence[Any], viewer: Asking) -> str:
    one, more = _WORDS.get(str(kind._meta.verbose_name)) or (kind._meta.verbose_name, kind._meta.verbose_name_plural)
    named = [row for row in rows if hasattr(row, "owner_id") and may_edit(viewer, row)]
    if len(rows) == 1:
        return f"the {one} {named[0]}" if named else f"1 {one}"
    return f"{len(rows)} {more}, such as {named[0]}," if named else f"{len(rows)} {more}"


@contextmanager
def kept_if_used(refusal: Refusal) -> Iterator[None]:
    """Turn the database's refusal to delete into a Conflict; `refusal` makes its sentence from the protecting rows."""
    try:
        yield
    except ProtectedError as error:
        raise Conflict(refusal(error.protected_objects), code="in_use") from error
