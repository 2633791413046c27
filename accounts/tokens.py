"""Tokens of the API and of log-ons by WMLA's clients. Each is shown once; only its digest is stored.

The token of a log-on is a JSON web token, because clients read its claims to show the user and the expiry. The server
ignores the claims: a token is valid while its row exists and has not expired, and the password has not changed.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import jwt
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts.models import ApiToken
from core.audit.entries import audit
from core.errors import Conflict, field_error
from core.scopes import FULL, checked_scope, job_of
from core.text import checked_name

__all__ = [
    "LIFETIME",
    "MAX_LOGONS",
    "MAX_TOKENS",
    "UNNAMED",
    "NewToken",
    "create_token",
    "digest_of",
    "log_off",
    "log_on",
    "make_token",
    "replace_token",
    "withdraw_token",
]

MAX_TOKENS = 50
#: Name of the token that `me/token/` creates, replaces and withdraws.
UNNAMED = "default"
#: Lifetime of a log-on.
LIFETIME = timedelta(hours=12)
#: Log-ons of a user at once; a new one replaces the oldest, for notebooks that log on in each run.
MAX_LOGONS = 20


@dataclass(frozen=True)
class NewToken:
    row: ApiToken
    #: The token itself, which cannot be read again later.
    text: str


def digest_of(secret: str) -> str:
    """Return the sha256 of a secret that is random enough to need no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


@transaction.atomic
def make_token(user: User, name: str, expires_at: datetime | None, scope: str = FULL) -> NewToken:
    """Create a token with a new name. Raises UserError for an invalid name, expiry or scope."""
    name, scope = checked_name(name, limit=64), checked_scope(scope)
    job = job_of(scope)
    if job is not None and not user.jobs.filter(pk=job).exists():
        raise field_error("scope", f"You have no training {job}: enter the number of one of your trainings.")
    if expires_at is not None and expires_at <= timezone.now():
        raise field_error("expires_at", "The time is in the past: enter a later time.")
    if user.api_tokens.filter(session_hash="").count() >= MAX_TOKENS:
        raise Conflict(f"You have {MAX_TOKENS} tokens, the maximum: revoke an unused token.")
    text = f"tide_{secrets.token_urlsafe(32)}"
    try:
        with transaction.atomic():
            row = ApiToken.objects.create(
                user=user, name=name, digest=digest_of(text), expires_at=expires_at, scope=scope
            )
    except IntegrityError:
        sentence = f"You already have a token {name!r}: choose another name, or revoke that token."
        raise Conflict(sentence, fields={"name": [sentence]}) from None
    _record(user, "created", row, after=_facts(row))
    return NewToken(row, text)


@transaction.atomic
def withdraw_token(actor: User, token: ApiToken) -> None:
    ApiToken.objects.filter(pk=token.pk).delete()
    _record(actor, "revoked", token, before=_facts(token))


@transaction.atomic
def create_token(user: User) -> str:
    """Create the token of `me/token/`, and withdraw the earlier one."""
    return replace_token(user, UNNAMED, None).text


@transaction.atomic
def replace_token(user: User, name: str, expires_at: datetime | None, scope: str = FULL) -> NewToken:
    """Create a token, and withdraw an earlier one with this name."""
    earlier = user.api_tokens.select_for_update().filter(name=name, session_hash="").first()
    if earlier is not None:
        withdraw_token(user, earlier)
    return make_token(user, name, expires_at, scope)


def _facts(token: ApiToken) -> dict[str, str]:
    ends = f"{token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "never"
    return {"scope": token.scope, "ends": ends}


def _record(actor: User, verb: str, token: ApiToken, **values: dict[str, str]) -> None:
    name = f"{token.name} of {token.user.get_username()}"
    audit(actor, verb, kind="API token", key=token.user_id, name=name, **values)


@transaction.atomic
def log_on(user: User) -> NewToken:
    """Create the token of a log-on. The caller has verified the password."""
    now, session_hash = timezone.now(), user.get_session_auth_hash()
    # Log-ons of a user are serialized, so that there are never more than MAX_LOGONS.
    User.objects.select_for_update().get(pk=user.pk)
    logons = user.api_tokens.exclude(session_hash="")
    logons.filter(Q(expires_at__lte=now) | ~Q(session_hash=session_hash)).delete()
    oldest = logons.order_by("-created_at", "-pk").values_list("pk", flat=True)[MAX_LOGONS - 1 :]
    ApiToken.objects.filter(pk__in=list(oldest)).delete()
    claims = {
        "username": user.get_username(),
        "sub": user.get_username(),
        "iat": int(now.timestamp()),
        "exp": int((now + LIFETIME).timestamp()),
        "jti": secrets.token_urlsafe(24),
    }
    # A separate key, so that this signature is valid nowhere else.
    key = salted_hmac("accounts.logons", "", secret=settings.SECRET_KEY, algorithm="sha256").digest()
    text = jwt.encode(claims, key, algorithm="HS256")
    row = ApiToken.objects.create(
        user=user,
        name=f"log-on {now:%Y-%m-%d %H:%M:%S} {secrets.token_hex(8)}",
        digest=digest_of(text),
        expires_at=now + LIFETIME,
        session_hash=session_hash,
    )
    return NewToken(row, text)


def log_off(token: ApiToken) -> None:
    """End this log-on. A token that the user created on purpose stays."""
    ApiToken.objects.filter(pk=token.pk).exclude(session_hash="").delete()
