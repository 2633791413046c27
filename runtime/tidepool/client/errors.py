"""Errors of requests to a site. Each message says what to do."""

import re
from collections.abc import Mapping, Sequence

__all__ = [
    "Conflict",
    "InvalidRequest",
    "JobFailed",
    "MissingPackage",
    "NotAllowed",
    "NotFound",
    "NotLoggedIn",
    "TidepoolError",
    "Unreachable",
    "WrongVersion",
    "with_site",
]

#: Beginning of an address of help, as sentences of the site and of scripts have it.
_HELP = re.compile(r"(?<![\w/.])/help/(?=[a-z])")


def with_site(text: str, site: str) -> str:
    """Return the text with complete addresses of help, such as `https://a.example.org/help/jobs/` for `/help/jobs/`."""
    return _HELP.sub(lambda _: f"{site}/help/", text)


class TidepoolError(Exception):
    """Base of all of them."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        #: The site's word for it, such as "throttled".
        self.code = code


class NotLoggedIn(TidepoolError):
    """No site or token is known, or the token is not valid any more."""


class NotAllowed(TidepoolError):
    """The user, or the scope of the token, may not do this."""


class NotFound(TidepoolError):
    """The object does not exist, or the user may not know of it (HTTP 404)."""


class InvalidRequest(TidepoolError):
    """Refusal of invalid input. `fields` says where: name -> sentences."""

    def __init__(self, message: str, *, code: str = "", fields: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(message, code=code)
        self.fields = {name: list(sentences) for name, sentences in (fields or {}).items()}


class Conflict(TidepoolError):
    """The request is valid but conflicts with the current state (HTTP 409)."""


class Unreachable(TidepoolError):
    """The site does not answer, or not as Tidepool does."""


class WrongVersion(TidepoolError):
    """The client and the site are too far apart to understand each other."""


class MissingPackage(TidepoolError, ImportError):
    """This call needs a package that is not installed."""


class JobFailed(TidepoolError, RuntimeError):
    """The job that was waited for did not succeed. Of RuntimeError, as what pyspark's TorchDistributor raises."""

    def __init__(
        self, message: str, *, job: int, state: str, traceback: str = "", rank: int | None = None, kind: str = ""
    ) -> None:
        super().__init__(message, code=state)
        self.job = job
        self.state = state
        #: Rank that failed; None: more than one did, or it is not known.
        self.rank = rank
        #: Class of the script's exception, such as "ValueError"; "": there was none.
        self.kind = kind
        #: Traceback of the script, as its rank wrote it; "": there was none.
        self.traceback = traceback
