"""Instance groups that follow the provider's groups. The app that has instance groups registers how."""

from collections.abc import Callable

from django.contrib.auth.models import User

from accounts.organization.group_table import Grants

__all__ = ["Follow", "follow_memberships", "register_memberships"]

#: Gives a user the memberships of these grants and takes others of the managed instance groups.
Follow = Callable[[User, Grants, frozenset[str]], None]
_registered: list[Follow] = []


def register_memberships(follow: Follow) -> None:
    """Have `follow` called at each log-in, in its transaction. Called from an app's `AppConfig.ready`."""
    _registered.append(follow)


def follow_memberships(user: User, grants: Grants, managed: frozenset[str]) -> None:
    for follow in _registered:
        follow(user, grants, managed)
