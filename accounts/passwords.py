"""Changes of one's own password, one-time links that set a password without the old one, and records of lockouts.

No mail is sent: administrators pass links on.
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY, authenticate, update_session_auth_hash
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from accounts.link_throttling import ONE_TIME_LINK, refuse_guessing
from accounts.models import OneTimeLink
from accounts.tokens import digest_of
from accounts.topics import ACCOUNTS
from core.audit.entries import audit
from core.errors import NotFound, field_error
from core.live import publish
from core.models import AuditEntry
from core.text import storable

__all__ = [
    "INVITATION",
    "RESET",
    "Handout",
    "change_own_password",
    "find_link",
    "hand_out_link",
    "record_lockout",
    "set_password_by_link",
]

INVITATION = timedelta(days=7)
RESET = timedelta(days=1)


@dataclass(frozen=True)
class Handout:
    """A one-time link for a user. The administrator sees it once, and passes it on."""

    user: User
    #: Path of the link on this site.
    path: str
    expires_at: datetime


def change_own_password(request: HttpRequest, user: User, old: str, new: str) -> None:
    """Set a new password, and end all sessions except this one.

    A wrong old password counts as a failed log-in, so that an open session cannot be used for guessing.
    """
    if authenticate(request=request, username=user.get_username(), password=old) is None:
        raise field_error("old_password", "The password is not correct.")
    _check_password(user, new)
    with transaction.atomic():
        _set_password(user, new, "changed the password of")
        publish(ACCOUNTS, "append", {"users": [user.pk]})
        if SESSION_KEY in request.session:
            update_session_auth_hash(request, user)


def hand_out_link(user: User, valid_for: timedelta, actor: User) -> Handout:
    """Create a one-time link, in the caller's transaction. An earlier link of this user ends."""
    now, secret = timezone.now(), secrets.token_urlsafe(32)
    OneTimeLink.objects.filter(user=user).delete()
    link = OneTimeLink.objects.create(
        user=user, digest=digest_of(secret), created_by=actor.get_username(), expires_at=now + valid_for
    )
    return Handout(user, reverse("one-time-link", args=[link.pk, secret]), link.expires_at)


def find_link(request: HttpRequest, number: int, secret: str, *, lock: bool = False) -> OneTimeLink:
    """Return the link with this number and secret. Raises NotFound, and UserError after too many wrong links."""
    refuse_guessing(request, ONE_TIME_LINK)
    links = OneTimeLink.objects.select_for_update(of=("self",)) if lock else OneTimeLink.objects.all()
    link = links.select_related("user").filter(pk=number, expires_at__gt=timezone.now(), user__is_active=True).first()
    if link is None or not hmac.compare_digest(link.digest, digest_of(secret)):
        raise NotFound("This link has been used or has expired: ask an administrator for a new link.")
    return link


@transaction.atomic
def set_password_by_link(request: HttpRequest, number: int, secret: str, password: str) -> User:
    """Set the user's password and delete the link. Raises UserError for an invalid password, and keeps the link."""
    link = find_link(request, number, secret, lock=True)
    _check_password(link.user, password)
    _set_password(link.user, password, "used a one-time link to set the password of")
    link.delete()
    return link.user


def record_lockout(sender: object, username: str | None, ip_address: str | None, **_: Any) -> None:
    """Record a lockout by django-axes in the audit, once for its duration.

    Further guesses in that time must not fill the database.
    """
    name, address = storable(username or "")[:255], (ip_address or "unknown")[:64]
    since = timezone.now() - timedelta(hours=settings.AXES_COOLOFF_TIME)
    with transaction.atomic():
        if not AuditEntry.objects.filter(kind="login", key=address, name=name, at__gte=since).exists():
            after = {"from": address, "failures": settings.AXES_FAILURE_LIMIT}
            audit("Tidepool", "paused", kind="login", key=address, name=name, after=after)


def _check_password(user: User, password: str) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise field_error("password", " ".join(error.messages)) from None


def _set_password(user: User, password: str, verb: str) -> None:
    user.set_password(password)
    user.save(update_fields=["password"])
    audit(user, verb, kind="user", key=user.pk, name=user.get_username())
