"""Violated database constraints: conflicts between two requests, or bugs."""

from django.db import IntegrityError
from django.db.models import ProtectedError, RestrictedError

from core.errors import Conflict

__all__ = ["conflict_behind"]

#: PostgreSQL's codes of unique keys, foreign keys and exclusions, and SQLite's names of the same.
_CONFLICTS = frozenset({"23505", "23503", "23P01"}) | {
    f"SQLITE_CONSTRAINT_{kind}" for kind in ("UNIQUE", "PRIMARYKEY", "ROWID", "FOREIGNKEY")
}


def conflict_behind(error: IntegrityError) -> Conflict | None:
    """Return the conflict to report if another request caused the violation, or None for a bug.

    Actions check names and references before they write. So a name that is taken, or a row that is gone or in use
    after all, was changed by another request in between. Nothing like it leads to a NULL or a value out of bounds.
    """
    cause = error.__cause__
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    if code not in _CONFLICTS and not isinstance(error, ProtectedError | RestrictedError):
        return None
    return Conflict("Another request changed the same thing at this moment: reload and try again.")
