"""Log-in of programs by a code, after RFC 8628: a user confirms the code in a browser, the program fetches its token.

The program holds one secret, the user types the other; only their sha256 are stored. The token itself
is created when the program fetches it, so it is never stored in between.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from accounts.authentication import address_of
from accounts.models import DeviceGrant
from accounts.tokens import NewToken, digest_of, replace_token
from accounts.verification_limits import verifying
from core.errors import Conflict, NotFound, TooMany, field_error
from core.scopes import checked_scope, job_of
from core.text import checked_name

__all__ = ["EXPIRES_AFTER", "POLL_SECONDS", "TOKEN_DAYS", "DeviceRequest", "answer", "ask", "fetch", "find"]

EXPIRES_AFTER = timedelta(minutes=10)
POLL_SECONDS = 2
TOKEN_DAYS = 90
#: Letters of a code: consonants and digits that look different from each other and form no words.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ23456789"
_HALF = 4
#: Limits on open requests, per address and in total.
_MOST_OF_ADDRESS, _MOST = 20, 1000
_MAX_MACHINE = 40
_GONE = "This code has expired or does not exist: get a new code with `tidepool login`."


@dataclass(frozen=True)
class DeviceRequest:
    #: Secret of the program.
    device: str
    #: Code that the user types, such as `WXYZ-2345`.
    code: str
    expires_at: datetime


@transaction.atomic
def ask(request: HttpRequest, machine: str, scope: str) -> DeviceRequest:
    """Open a request for a token. Raises UserError for an invalid machine or scope, TooMany."""
    machine, scope = checked_name(machine, field="machine", limit=_MAX_MACHINE), checked_scope(scope)
    if job_of(scope) is not None:
        raise field_error("scope", "Use read, submit or full. Create a token for one training on your account page.")
    now, address = timezone.now(), address_of(request)[:64]
    DeviceGrant.objects.filter(expires_at__lte=now).delete()
    if DeviceGrant.objects.filter(address=address).count() >= _MOST_OF_ADDRESS or DeviceGrant.objects.count() >= _MOST:
        raise TooMany("Too many programs are waiting for a login: confirm one, or try again later.", retry_seconds=60)
    device, code = secrets.token_urlsafe(32), "".join(secrets.choice(_LETTERS) for _ in range(2 * _HALF))
    grant = DeviceGrant.objects.create(
        device_digest=digest_of(device),
        code_digest=digest_of(code),
        machine=machine,
        address=address,
        scope=scope,
        expires_at=now + EXPIRES_AFTER,
    )
    return DeviceRequest(device, f"{code[:_HALF]}-{code[_HALF:]}", grant.expires_at)


def find(request: HttpRequest, code: str) -> DeviceGrant:
    """Return the open request with this code, as a user types it. Wrong codes count as wrong passwords.

    Raises NotFound, TooMany.
    """
    typed = "".join(letter for letter in code.upper() if letter in _LETTERS)
    address = address_of(request)
    with verifying.turn(address):
        grant = DeviceGrant.objects.filter(
            code_digest=digest_of(typed), expires_at__gt=timezone.now(), user=None
        ).first()
    if grant is None:
        verifying.count_failure(address)
        raise NotFound(_GONE)
    return grant


def answer(grant: DeviceGrant, user: User, *, confirmed: bool) -> None:
    """Confirm or refuse the request. Raises Conflict if it was answered in the meantime."""
    open_one = DeviceGrant.objects.filter(pk=grant.pk, user=None, expires_at__gt=timezone.now())
    changed = open_one.update(user=user) if confirmed else open_one.delete()[0]
    if not changed:
        raise Conflict(_GONE)


@transaction.atomic
def fetch(device: str) -> NewToken | None:
    """Return the token once; None until a user confirms. Raises NotFound if it was refused, expired or fetched."""
    rows = DeviceGrant.objects.select_for_update(of=("self",)).select_related("user")
    grant = rows.filter(device_digest=digest_of(device), expires_at__gt=timezone.now()).first()
    if grant is None:
        raise NotFound("The login was refused or not confirmed: try again with `tidepool login`.")
    if grant.user is None:
        return None
    grant.delete()
    if not grant.user.is_active:
        raise NotFound("The account that confirmed this login is deactivated: ask an administrator.")
    expires_at = timezone.now() + timedelta(days=TOKEN_DAYS)
    return replace_token(grant.user, f"tidepool on {grant.machine}", expires_at, grant.scope)
