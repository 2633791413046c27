"""Errors that are shown to users.

    UserError (400)      the request is invalid; `fields` says where
    ├── NotAllowed (403) the user may see the object, but may not do this to it
    ├── NotFound (404)   the object does not exist, or the user may not know of it
    ├── TooMany (429)    the request is valid, but too early: `retry_seconds`
    └── Conflict (409)   the request is valid but conflicts with the current state

The message is one sentence that says what to do. Pages, the API and commands show it as it is.
"""

from collections.abc import Mapping, Sequence

__all__ = ["Conflict", "NotAllowed", "NotFound", "TooMany", "UserError", "field_error"]


class UserError(ValueError):
    status = 400
    default_code = "invalid"

    def __init__(
        self, message: str, *, code: str | None = None, fields: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        #: Errors: field name -> sentences.
        self.fields = {name: list(sentences) for name, sentences in (fields or {}).items()}


class NotAllowed(UserError):
    status = 403
    default_code = "not_allowed"


class NotFound(UserError):
    status = 404
    default_code = "not_found"


class Conflict(UserError):
    status = 409
    default_code = "conflict"


class TooMany(UserError):
    status = 429
    default_code = "throttled"

    def __init__(self, message: str, *, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


def field_error(name: str, sentence: str, *, code: str | None = None) -> UserError:
    """Return an error about one field."""
    return UserError(sentence, code=code, fields={name: [sentence]})
