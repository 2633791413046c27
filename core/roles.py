"""Roles of users, and what each may do.

    viewer          reads what a data scientist reads, and changes nothing but the own account
    data scientist  the default: registers, submits, and owns what comes of it
    group admin     a data scientist who also administers named instance groups (`InstanceGroup.admins`)
    cluster admin   everything; Django's `is_staff`, so that `createsuperuser` makes one

Viewers are members of Django's group "viewers", so that its own tools can make and unmake them, too. What a viewer
sends is refused before any view is asked (`webapp/middleware.py` and `SignedIn`), so that none can forget it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db.models import TextChoices
from django.http import HttpRequest
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from core.errors import NotAllowed

__all__ = [
    "OWN_MATTERS",
    "VIEWERS",
    "Role",
    "SignedIn",
    "may_change",
    "refuse_what_viewers_send",
    "require_cluster_admin",
    "require_group_admin",
    "role_of",
    "viewers",
]

VIEWERS = "viewers"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: (method, name of the address): all that a viewer may send. It concerns nobody but the sender.
OWN_MATTERS = frozenset(
    {
        ("POST", "login"),
        ("POST", "logout"),
        ("POST", "jobs:save-filter"),
        ("POST", "jobs:forget-filter"),
        ("POST", "api:job-filters"),
        ("DELETE", "api:job-filter"),
        ("DELETE", "api:token"),
        ("DELETE", "api:my-token"),
        ("POST", "api:my-password"),
        ("POST", "account-password"),
        ("POST", "account-token-withdraw"),
        ("POST", "one-time-link"),
        ("POST", "wmla:logon"),
        ("POST", "wmla:logoff"),
    }
)

Asking = AbstractBaseUser | AnonymousUser


class Role(TextChoices):
    """The role that is stored of a user. Administrators of an instance group are stored with that group."""

    VIEWER = "viewer", "viewer"
    DATA_SCIENTIST = "data_scientist", "data scientist"
    CLUSTER_ADMIN = "cluster_admin", "cluster admin"


class SignedIn(IsAuthenticated):
    """Every endpoint asks for it: nobody without a log-in, nothing that viewers send."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        refuse_what_viewers_send(request.user, request._request)
        return True


def role_of(user: Asking) -> Role:
    if getattr(user, "is_staff", False):
        return Role.CLUSTER_ADMIN
    return Role.VIEWER if isinstance(user, User) and user.groups.filter(name=VIEWERS).exists() else Role.DATA_SCIENTIST


def viewers() -> Group:
    """The group; made anew where somebody removed it."""
    return Group.objects.get_or_create(name=VIEWERS)[0]


def may_change(user: Asking) -> bool:
    """False for viewers and strangers."""
    return user.is_authenticated and role_of(user) != Role.VIEWER


def refuse_what_viewers_send(user: Asking, request: HttpRequest) -> None:
    if request.method in _SAFE_METHODS:
        return
    name = request.resolver_match.view_name if request.resolver_match else ""
    if (request.method, name) not in OWN_MATTERS and role_of(user) == Role.VIEWER:
        raise NotAllowed("Your role is viewer, which may look at everything and change nothing: ask an administrator.")


def require_cluster_admin(user: Asking) -> None:
    """In views and API alike: the refusal becomes a page, or the API's error."""
    if role_of(user) != Role.CLUSTER_ADMIN:
        raise NotAllowed("Only an administrator of the cluster may do this: ask one.")


def require_group_admin(user: Asking, admins: Collection[int]) -> None:
    """Of one instance group, whose administrators' ids are given; those of the cluster administer all."""
    if getattr(user, "is_staff", False):
        return
    if user.pk not in admins or role_of(user) == Role.VIEWER:
        raise NotAllowed("Only its administrators and those of the cluster may change this group: ask one.")
