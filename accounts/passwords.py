"""Checks of passwords, and the change of one's own."""

from __future__ import annotations

from django.contrib.auth import SESSION_KEY, authenticate, update_session_auth_hash
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest

from core.audit.entries import audit
from core.errors import field_error
from core.live import ACCOUNTS, publish

__all__ = ["change_own_password", "check_password"]


def check_password(user: User, password: str) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise field_error("password", " ".join(error.messages)) from None


def change_own_password(request: HttpRequest, user: User, old: str, new: str) -> None:
    """Ends all sessions but this one. Wrong old ones count as wrong log-ins do: an open session is no way to guess."""
    if authenticate(request=request, username=user.get_username(), password=old) is None:
        raise field_error("old_password", "This is not your password.")
    check_password(user, new)
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=["password"])
        audit(user, "changed the password of", kind="user", key=user.pk, name=user.get_username())
        publish(ACCOUNTS, "append", {"users": [user.pk]})
        if SESSION_KEY in request.session:
            update_session_auth_hash(request, user)
