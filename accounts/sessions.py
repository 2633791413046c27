"""Django's sessions in the database, without looking up keys that no session can have.

A cookie may carry any character, NUL as well, which a database refuses in a query.
"""

from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions

__all__ = ["SessionStore"]


class SessionStore(DatabaseSessions):
    def _validate_session_key(self, key: str | None) -> bool:
        """Return whether Django could have made this key; with any other, the request has no session."""
        is_valid: bool = super()._validate_session_key(key)  # type: ignore[misc]
        return is_valid and key is not None and key.isascii() and key.isalnum()
