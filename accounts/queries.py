"""Queries of users for pages and the API."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.utils import timezone

from core.errors import existing
from core.roles import VIEWERS, Role, is_cluster_admin
from core.text import by_reference

__all__ = ["UserRow", "find_user", "user_row", "users"]


@dataclass(frozen=True)
class UserRow:
    """A user as administrators see them."""

    id: int
    username: str
    role: Role
    state: str
    #: Whether the user logs in with the organization's provider, whose groups decide on the role.
    has_provider: bool
    #: Expiry of the open one-time link.
    link_expires_at: datetime | None
    #: Names of the restricted groups that the user may submit to, and of those that the user administers.
    instance_groups: list[str]
    administers: list[str]
    tokens: int
    last_login: datetime | None
    created_at: datetime

    @property
    def role_words(self) -> str:
        """Return the role as pages show it, which includes the groups that the user administers."""
        if self.administers and self.role == Role.DATA_SCIENTIST:
            return "group admin"
        return str(self.role.label)


def users(search: str = "") -> QuerySet[User]:
    """List users by name, with everything that a list shows."""
    is_viewer = User.groups.through.objects.filter(user_id=OuterRef("pk"), group__name=VIEWERS)
    rows = User.objects.annotate(is_viewer=Exists(is_viewer), token_count=Count("api_tokens"))
    if search:
        rows = rows.filter(username__icontains=search)
    return (
        rows.select_related("one_time_link", "identity")
        .prefetch_related("instance_groups", "administered_groups")
        .order_by("username")
    )


def find_user(reference: int | str) -> User:
    """Return the user with this name or, if there is none, with this id. Raises NotFound."""
    return existing(by_reference(users(), reference, name="username"), "user")


def user_row(user: User) -> UserRow:
    """Build the row of a user from `users`."""
    link = getattr(user, "one_time_link", None)
    expires_at = link.expires_at if link is not None and link.expires_at > timezone.now() else None
    has_provider = getattr(user, "identity", None) is not None
    role = Role.VIEWER if user.is_viewer else Role.DATA_SCIENTIST  # type: ignore[attr-defined]  # see `users`
    return UserRow(
        id=user.pk,
        username=user.username,
        role=Role.CLUSTER_ADMIN if is_cluster_admin(user) else role,
        state=_state(user, expires_at, has_provider=has_provider),
        has_provider=has_provider,
        link_expires_at=expires_at,
        instance_groups=sorted(group.name for group in user.instance_groups.all()),
        administers=sorted(group.name for group in user.administered_groups.all()),
        tokens=user.token_count,  # type: ignore[attr-defined]
        last_login=user.last_login,
        created_at=user.date_joined,
    )


def _state(user: User, link_expires_at: datetime | None, *, has_provider: bool) -> str:
    """Return the state of a user as pages show it. Tidepool's own scripts use accounts without a password."""
    if not user.is_active:
        return "deactivated"
    if user.has_usable_password() or (has_provider and link_expires_at is None):
        return "active"
    if link_expires_at is None:
        return "no password"
    return "invited" if user.last_login is None else "password reset"
