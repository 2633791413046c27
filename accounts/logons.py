"""Tokens of a log-on by WMLA's clients: JSON web tokens, each with a row of its own among the user's API tokens.

Clients read the claims to show who is logged on and until when. Here they decide nothing: a token is good as long as
its row is there, has not expired, and the user's password is that of the log-on.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import jwt
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts.models import ApiToken
from accounts.secret import digest_of

__all__ = ["LIFETIME", "MAX_LOGONS", "Logon", "log_off", "log_on"]

LIFETIME = timedelta(hours=12)
#: Of a user at once; a notebook that logs on in each run pushes out its oldest.
MAX_LOGONS = 20
_NAME = "log-on"


@dataclass(frozen=True)
class Logon:
    #: The JSON web token. Only its digest is kept.
    text: str
    expires_at: datetime


@transaction.atomic
def log_on(user: User) -> Logon:
    """Whoever calls has checked the password."""
    now = timezone.now()
    # One log-on of a user after the other, so that there are never more than may be.
    User.objects.select_for_update().get(pk=user.pk)
    logons = user.api_tokens.exclude(session_hash="")
    logons.filter(Q(expires_at__lte=now) | ~Q(session_hash=user.get_session_auth_hash())).delete()
    oldest = logons.order_by("-created_at", "-pk").values_list("pk", flat=True)[MAX_LOGONS - 1 :]
    ApiToken.objects.filter(pk__in=list(oldest)).delete()
    expires_at, number = now + LIFETIME, secrets.token_hex(8)
    claims = {
        "username": user.get_username(),
        "sub": user.get_username(),
        "iat": int(now.timestamp()),
        "exp": int(expires_at.timestamp()),
        "jti": secrets.token_urlsafe(24),
    }
    text = jwt.encode(claims, _key(), algorithm="HS256")
    ApiToken.objects.create(
        user=user,
        name=f"{_NAME} {now:%Y-%m-%d %H:%M:%S} {number}",
        digest=digest_of(text),
        expires_at=expires_at,
        session_hash=user.get_session_auth_hash(),
    )
    return Logon(text, expires_at)


def log_off(token: ApiToken) -> None:
    """End this log-on; a token that was made by hand stays."""
    ApiToken.objects.filter(pk=token.pk).exclude(session_hash="").delete()


def _key() -> bytes:
    """A key of its own, so that what is signed here means nothing elsewhere."""
    return salted_hmac("accounts.logons", "", secret=settings.SECRET_KEY, algorithm="sha256").digest()
