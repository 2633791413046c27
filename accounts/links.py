"""One-time links, by which users set a password without the old one. No mail is sent: administrators hand them on."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from axes.handlers.proxy import AxesProxyHandler
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_login_failed
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from accounts.models import OneTimeLink
from accounts.passwords import check_password
from accounts.secret import digest_of, new_secret
from core.audit.entries import audit
from core.errors import NotFound, UserError
from core.references import is_storable

__all__ = ["INVITATION", "RESET", "Handout", "count_wrong_link", "find_link", "hand_out_link", "set_password_by_link"]

INVITATION = timedelta(days=7)
RESET = timedelta(days=1)
#: Under this name django-axes counts links that do not exist, by address of the browser, as it counts wrong passwords.
_GUESSING = "one-time link"


@dataclass(frozen=True)
class Handout:
    """A link that an administrator hands on to a user, and can read only now."""

    user: User
    #: Path of the link on this site.
    path: str
    expires_at: datetime


def hand_out_link(user: User, valid_for: timedelta, actor: User) -> Handout:
    """In the caller's transaction. An earlier link of this user ends."""
    now, secret = timezone.now(), new_secret()
    OneTimeLink.objects.filter(user=user).delete()
    link = OneTimeLink.objects.create(
        user=user, digest=digest_of(secret), created_by=actor.get_username(), expires_at=now + valid_for
    )
    return Handout(user, reverse("one-time-link", args=[link.pk, secret]), link.expires_at)


def find_link(request: HttpRequest, number: int, secret: str, *, lock: bool = False) -> OneTimeLink:
    """The link of this address; who tries too many wrong ones must wait."""
    if not AxesProxyHandler.is_allowed(request, {"username": _GUESSING}):
        raise UserError("Too many links that do not exist: wait a quarter of an hour.", code="throttled")
    links = OneTimeLink.objects.select_for_update(of=("self",)) if lock else OneTimeLink.objects.all()
    link = links.select_related("user").filter(pk=number, expires_at__gt=timezone.now(), user__is_active=True).first()
    if link is None or not hmac.compare_digest(link.digest, digest_of(secret)):
        raise NotFound("This link has been used or has expired: ask an administrator for another one.")
    return link


def count_wrong_link(request: HttpRequest) -> None:
    """Outside of the transaction that refused it. django-axes keeps the path; what cannot be stored is no guess."""
    if is_storable(request.path_info):
        user_login_failed.send(__name__, credentials={"username": _GUESSING}, request=request)


@transaction.atomic
def set_password_by_link(request: HttpRequest, number: int, secret: str, password: str) -> User:
    """The link ends. Raises UserError where the password is none that may be used; the link stays then."""
    link = find_link(request, number, secret, lock=True)
    user = link.user
    check_password(user, password)
    user.set_password(password)
    user.save(update_fields=["password"])
    link.delete()
    audit(user, "set by a one-time link the password of", kind="user", key=user.pk, name=user.get_username())
    return user
