"""API tokens: each user makes and withdraws own ones, administrators withdraw any."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import ApiToken
from accounts.secret import digest_of, new_secret
from core.audit.entries import audit
from core.errors import Conflict, field_error
from core.names import checked_name

__all__ = ["MAX_TOKENS", "UNNAMED", "NewToken", "create_token", "make_token", "withdraw_token"]

MAX_TOKENS = 50
#: The name of the one that `me/token/` makes, replaces and withdraws.
UNNAMED = "default"
_KIND = "API token"


@dataclass(frozen=True)
class NewToken:
    row: ApiToken
    #: The token itself: this is the only time that it can be read.
    text: str


@transaction.atomic
def make_token(user: User, name: str, expires_at: datetime | None) -> NewToken:
    name = checked_name(name, limit=64)
    if expires_at is not None and expires_at <= timezone.now():
        raise field_error("expires_at", "This moment is over: give one to come.")
    if user.api_tokens.filter(session_hash="").count() >= MAX_TOKENS:
        raise Conflict(f"You have {MAX_TOKENS} tokens: withdraw one that nothing uses.")
    text = f"tide_{new_secret()}"
    try:
        with transaction.atomic():
            row = ApiToken.objects.create(user=user, name=name, digest=digest_of(text), expires_at=expires_at)
    except IntegrityError:
        sentence = f"You have a token {name!r} already: take another name, or withdraw that one."
        raise Conflict(sentence, fields={"name": [sentence]}) from None
    _record(user, "made", row, after=_ends(row))
    return NewToken(row, text)


@transaction.atomic
def withdraw_token(actor: User, token: ApiToken) -> None:
    ApiToken.objects.filter(pk=token.pk).delete()
    _record(actor, "withdrew", token, before=_ends(token))


@transaction.atomic
def create_token(user: User) -> str:
    """The token of `me/token/`; the earlier one of that name ends."""
    earlier = user.api_tokens.select_for_update().filter(name=UNNAMED).first()
    if earlier is not None:
        withdraw_token(user, earlier)
    return make_token(user, UNNAMED, None).text


def _ends(token: ApiToken) -> dict[str, str]:
    return {"ends": f"{token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "never"}


def _record(actor: User, verb: str, token: ApiToken, **values: dict[str, str]) -> None:
    name = f"{token.name} of {token.user.get_username()}"
    audit(actor, verb, kind=_KIND, key=token.user_id, name=name, **values)
