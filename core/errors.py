"""Errors that are shown to users.

    UserError (400)      the request is invalid; `fields` says where
    ├── NotAllowed (403) the user may see the object, but may not do this to it
    ├── NotFound (404)   the object does not exist, or the user may not know of it
    ├── TooMany (429)    the request is valid, but too early: `retry_seconds`
    ├── Conflict (409)   the request is valid but conflicts with the current state
    ├── Unavailable (503) the request is valid, but a server that the site depends on does not answer
    └── DiskFull (507)   the request is valid, but the site has no room

The message is one sentence that says what to do. Pages, the API and commands show it as it is.
"""

import errno
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

__all__ = [
    "FULL",
    "Conflict",
    "DiskFull",
    "NotAllowed",
    "NotFound",
    "TooMany",
    "Unavailable",
    "UserError",
    "existing",
    "field_error",
    "if_full",
    "name_taken",
]

Row = TypeVar("Row")

#: Numbers of errors of a full disk, or of a user's part of it.
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


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


class Unavailable(UserError):
    """A server of somebody else's does not answer, or not as it should. The same request may succeed later."""

    status = 503
    default_code = "unavailable"


class DiskFull(UserError):
    """The site has no room for what was sent. Nobody's mistake: the same request succeeds once there is."""

    status = 507
    default_code = "disk_full"


def if_full(error: OSError) -> DiskFull | None:
    """Return what to answer if the disk was full, or the user's part of it; None: it was another error."""
    # shutil.copytree keeps the errors of its files as text.
    texts = [str(why) for *_, why in error.args[0]] if isinstance(error, shutil.Error) else []
    if error.errno not in FULL and not any(f"[Errno {number}]" in text for number in FULL for text in texts):
        return None
    return DiskFull("The site's disk is full: nothing was stored. Try again once an administrator has made room.")


def field_error(name: str, sentence: str, *, code: str | None = None) -> UserError:
    """Return an error about one field."""
    return UserError(sentence, code=code, fields={name: [sentence]})


def existing(row: Row | None, what: str) -> Row:
    """Return the row. Raises NotFound for None. what: such as "study 12"."""
    if row is None:
        raise NotFound(f"{what[:1].upper()}{what[1:]} not found: look it up in the list.")
    return row


def name_taken(what: str, name: str) -> Conflict:
    """Return the error for a name that another row has. what: such as "Environment"."""
    sentence = f"{what} “{name}” already exists: choose another name."
    return Conflict(sentence, code="name_taken", fields={"name": [sentence]})
