"""Authors of changes, read from the audit."""

from core.edits import Author
from core.models import AuditEntry

__all__ = ["authors_of"]

_MOST_ENTRIES = 500


def authors_of(kind: str, key: object) -> dict[str, Author]:
    """Return field -> author of its newest change, for one object."""
    entries = AuditEntry.objects.filter(kind=kind, key=str(key)).order_by("-at", "-id")[:_MOST_ENTRIES]
    return {field: Author(entry.actor, entry.at) for entry in reversed(entries) for field in entry.after}
