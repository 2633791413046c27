"""The rule for registering the next version under a name."""

from __future__ import annotations

from typing import Protocol

from django.contrib.auth.models import User

from core.errors import NotAllowed

__all__ = ["refuse_foreign"]


class _Owned(Protocol):
    name: str
    owner_id: int


def refuse_foreign(user: User, row: _Owned | None, what: str) -> None:
    """Names are taken for good: only the owner and administrators may register more under one."""
    if row is not None and row.owner_id != user.pk and not user.is_staff:
        raise NotAllowed(
            f"The {what} {row.name!r} belongs to somebody else: choose another name.",
            fields={"name": ["This name is taken."]},
        )
