"""Makes and withdraws API tokens."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import User

from webapp.authentication import token_digest
from webapp.models import ApiToken

__all__ = ["create_token", "withdraw_token"]


def create_token(user: User) -> str:
    """A new token; the user's earlier one ends. This is the only time that it can be read."""
    token = f"tide_{secrets.token_urlsafe(32)}"
    ApiToken.objects.update_or_create(user=user, defaults={"digest": token_digest(token)})
    return token


def withdraw_token(user: User) -> None:
    ApiToken.objects.filter(user=user).delete()
