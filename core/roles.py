"""Roles of users and their permissions.

    viewer          reads everything that a data scientist reads, and changes only the own account
    data scientist  the default: registers, submits, and owns the results
    group admin     a data scientist who also administers named instance groups (`InstanceGroup.admins`)
    cluster admin   everything; Django's `is_staff`, so that `createsuperuser` makes one

Viewers are members of Django's group "viewers", so that Django's own tools can manage them, too. A viewer's changes are
refused before the view runs (`webapp/middleware.py` and `SignedIn`), so that no view can forget it. The same applies to
requests that the scope of a token does not open (`core/scopes.py`).
"""

from typing import Any, Protocol

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db.models import TextChoices
from django.http import HttpRequest
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from core.errors import NotAllowed
from core.scopes import FULL, SAFE_METHODS, refuse_beyond_scope

__all__ = [
    "VIEWERS",
    "Asking",
    "Owned",
    "Role",
    "SignedIn",
    "is_cluster_admin",
    "is_for_viewers",
    "may_change",
    "may_edit",
    "refuse_what_viewers_send",
    "register_forms",
    "register_own_matters",
    "require_cluster_admin",
    "role_of",
    "viewers",
]

VIEWERS = "viewers"
#: Names of pages that only show a form which viewers may not send.
_forms: set[str] = set()
#: Changes that a viewer may make, as (method, name of the address). Each concerns the viewer's own account only.
_own_matters: set[tuple[str, str]] = set()

Asking = AbstractBaseUser | AnonymousUser


class Owned(Protocol):
    owner_id: int


class Role(TextChoices):
    """The stored role of a user. Administrators of an instance group are stored with that group."""

    VIEWER = "viewer", "viewer"
    DATA_SCIENTIST = "data_scientist", "data scientist"
    CLUSTER_ADMIN = "cluster_admin", "cluster admin"


class SignedIn(IsAuthenticated):
    """Permission of every endpoint: requires a log-in and the token's scope, and refuses changes by viewers."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        refuse_beyond_scope(getattr(request.auth, "scope", FULL), request._request)
        refuse_what_viewers_send(request.user, request._request)
        return True


def is_cluster_admin(user: Asking) -> bool:
    return bool(getattr(user, "is_staff", False))


def role_of(user: Asking) -> Role:
    if is_cluster_admin(user):
        return Role.CLUSTER_ADMIN
    return Role.VIEWER if isinstance(user, User) and user.groups.filter(name=VIEWERS).exists() else Role.DATA_SCIENTIST


def viewers() -> Group:
    """Return the group of viewers; create it if somebody removed it."""
    return Group.objects.get_or_create(name=VIEWERS)[0]


def may_change(user: Asking) -> bool:
    """Return False for viewers and strangers."""
    return user.is_authenticated and role_of(user) != Role.VIEWER


def may_edit(user: Asking, row: Owned) -> bool:
    """Return True for the owner, unless a viewer by now, and for administrators."""
    return is_cluster_admin(user) or (row.owner_id == user.pk and may_change(user))


def register_own_matters(method: str, *names: str) -> None:
    """Let viewers use this method at the addresses with these names. Called from an app's `AppConfig.ready`."""
    _own_matters.update((method, name) for name in names)


def register_forms(*names: str) -> None:
    """Keep viewers from the pages at the addresses with these names, which only show a form that would be refused."""
    _forms.update(names)


def is_for_viewers(method: str, name: str) -> bool:
    """Return whether viewers may use this method at the address with this name."""
    if method in SAFE_METHODS:
        return name not in _forms
    return (method, name) in _own_matters


def refuse_what_viewers_send(user: Asking, request: HttpRequest) -> None:
    name = request.resolver_match.view_name if request.resolver_match else ""
    if not is_for_viewers(request.method or "", name) and role_of(user) == Role.VIEWER:
        raise NotAllowed("Your role is viewer, which can see everything but change nothing: ask an administrator.")


def require_cluster_admin(user: Asking) -> None:
    """Raise NotAllowed unless the user is an administrator; it becomes a page or the API's error."""
    if not is_cluster_admin(user):
        raise NotAllowed("Only an administrator of the cluster may do this: ask an administrator.")
