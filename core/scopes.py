"""Scopes of API tokens: the addresses that a token opens, among those that its user may use.

    read     reading
    submit   reading, and the user's own trainings, datasets, models and files: submit, change, stop, delete
    full     everything that the user may do with a password
    job:412  that one training: read, change and stop it

The role still decides about each row. Every token may show its owner and end itself. Changes by WMLA's addresses need
`full`. Other addresses are refused, so a new address opens to `full` only.
"""

import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from core.errors import NotAllowed, field_error

__all__ = [
    "FULL",
    "READ",
    "SAFE_METHODS",
    "SUBMIT",
    "admits",
    "checked_scope",
    "job_of",
    "refuse_beyond_scope",
    "register_for_every_token",
    "register_for_one_job",
    "register_for_submit",
]

READ, SUBMIT, FULL = "read", "submit", "full"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_JOB = re.compile(r"job:([1-9][0-9]{0,17})")
#: Requests of every token, as (method, name of the address): show the owner, and end the token.
_for_every_token: set[tuple[str, str]] = set()
#: Beginnings of the names of addresses at which `submit` allows every method.
_for_submit: list[str] = ["api:upload"]
#: Names of the addresses at which `job:412` allows changes; none of them creates another training.
_for_one_job: set[str] = set()


def register_for_every_token(method: str, *names: str) -> None:
    """Open these addresses to every token, whatever its scope. Called from an app's `AppConfig.ready`."""
    _for_every_token.update((method, name) for name in names)


def register_for_submit(*beginnings: str) -> None:
    """Open addresses to `submit` by the beginnings of their names. Called from `AppConfig.ready`."""
    _for_submit.extend(beginnings)


def register_for_one_job(*names: str) -> None:
    """Open these addresses of a training to its own token. Called from `AppConfig.ready`."""
    _for_one_job.update(names)


def checked_scope(text: str) -> str:
    """Return the scope. Raises UserError if there is none with this name."""
    if text in (READ, SUBMIT, FULL) or _JOB.fullmatch(text):
        return text
    raise field_error("scope", "The scope must be read, submit, full, or job:412 with a training's number.")


def job_of(scope: str) -> int | None:
    """Return the id of the training that the scope is limited to, or None."""
    found = _JOB.fullmatch(scope)
    return int(found[1]) if found else None


def admits(scope: str, method: str, name: str, values: Mapping[str, Any]) -> bool:
    """Return whether a token of this scope opens the address `name` with these `values` in it."""
    is_read = method in SAFE_METHODS
    if scope == FULL or (method, name) in _for_every_token:
        return True
    if (job := job_of(scope)) is not None:
        return name.startswith("api:") and values.get("job") == job and (is_read or name in _for_one_job)
    return is_read or (scope == SUBMIT and name.startswith(tuple(_for_submit)))


def refuse_beyond_scope(scope: str, request: HttpRequest) -> None:
    """Raise NotAllowed if a token of this scope does not open the address of the request."""
    match = request.resolver_match
    if not admits(scope, request.method or "", match.view_name if match else "", match.kwargs if match else {}):
        advice = "create a token with a wider scope on your account page"
        raise NotAllowed(f"The token's scope is {scope}, which does not permit this request: {advice}.", code="scope")
