"""The log-in of a person whom the provider has authenticated: which user that is, with which role, or why none."""

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from accounts.account_rows import (
    active_admins,
    checked_username,
    create_user,
    facts,
    keep_an_admin,
    record_change,
    store_role,
)
from accounts.models import ApiToken, Identity, OneTimeLink
from accounts.organization.group_table import Grants, GroupTable
from accounts.organization.memberships import follow_memberships
from core.errors import Conflict, NotAllowed, UserError
from core.roles import Role, is_cluster_admin, role_of
from core.text import shown_text

__all__ = ["ACTOR", "Person", "arrive", "connect", "site_table"]

#: Author of changes in the audit.
ACTOR = "Tidepool"
_MAX_SUBJECT = 255


@dataclass(frozen=True)
class Person:
    """A person as the provider describes them."""

    #: Issuer of the provider, and its name on pages.
    provider: str
    provider_name: str
    #: The provider's own and unchanging name for the person.
    subject: str
    #: Name that the person's account gets here.
    username: str
    groups: frozenset[str]


def arrive(person: Person, table: GroupTable) -> User:
    """Return the person's user with the role and instance groups of the table. The first log-in creates the user.

    Raises NotAllowed and Conflict with a sentence for the person. A user whose groups allow no log-in any more loses
    all sessions and tokens.
    """
    grants = table.granted(person.groups)
    if grants is None:
        _lock_out(person, table.managed)
        raise NotAllowed(
            f"None of your groups at {person.provider_name} may use this site: ask an administrator to add you to one."
        )
    with transaction.atomic():
        user = _user_of(person) or _new_user(person, Role(grants.role))
        if not user.is_active:
            raise NotAllowed(f"The account {user.username} is deactivated: ask an administrator to activate it.")
        _follow_role(user, Role(grants.role))
        follow_memberships(user, grants, table.managed)
    return user


def site_table() -> GroupTable:
    """Return the site's table of groups, which is there wherever people log in with a provider or directory."""
    table: GroupTable | None = settings.LOGIN_GROUPS
    assert table is not None, "the settings require the table"
    return table


@transaction.atomic
def connect(user: User, provider: str, subject: str) -> None:
    """Let this person of the provider log in as the user, who has had a password only. Raises UserError."""
    if not subject or len(subject) > _MAX_SUBJECT:
        raise UserError(f"The subject must have 1 to {_MAX_SUBJECT} characters: copy it from the provider.")
    if Identity.objects.filter(user=user).exists():
        raise Conflict(f"{user.username} already logs in with a provider.")
    if other := Identity.objects.filter(provider=provider, subject=subject).select_related("user").first():
        raise Conflict(f"This person logs in as {other.user.username}: deactivate that account, or keep it.")
    Identity.objects.create(user=user, provider=provider, subject=subject)
    record_change(ACTOR, "connected to the provider", user, None)


def _user_of(person: Person) -> User | None:
    known = Identity.objects.filter(provider=person.provider, subject=person.subject).first()
    return None if known is None else User.objects.select_for_update().get(pk=known.user_id)


def _new_user(person: Person, role: Role) -> User:
    if not person.subject or len(person.subject) > _MAX_SUBJECT:
        raise NotAllowed(f"{person.provider_name} does not say who you are: tell an administrator.")
    user = create_user(_free_name(person), role)
    Identity.objects.create(user=user, provider=person.provider, subject=person.subject)
    record_change(ACTOR, f"created at a login with {person.provider_name}", user, {})
    return user


def _free_name(person: Person) -> str:
    name, provider = shown_text(person.username), person.provider_name
    try:
        return checked_username(person.username)
    except Conflict:
        raise Conflict(
            f"Your user name at {provider} is {name}, and another account of this site already has that name. Ask an "
            "administrator to connect the two."
        ) from None
    except UserError as error:
        raise NotAllowed(
            f"Your user name at {provider}, {name}, cannot be used here: {error.message} Ask an administrator which "
            "claim has the names of users."
        ) from None


def _follow_role(user: User, role: Role) -> None:
    if role_of(user) == role:
        return
    _keep_a_password(user)
    before = facts(user)
    store_role(user, role)
    record_change(ACTOR, "followed the provider's groups for", user, before)


@transaction.atomic
def _lock_out(person: Person, managed: frozenset[str]) -> None:
    """End the sessions, tokens and password of a user whom the provider's groups no longer let in."""
    user = _user_of(person)
    if user is None or not user.is_active:
        return
    _keep_a_password(user)
    user.set_unusable_password()
    user.save(update_fields=["password"])
    ApiToken.objects.filter(user=user).delete()
    OneTimeLink.objects.filter(user=user).delete()
    follow_memberships(user, Grants(Role.VIEWER), managed)
    record_change(ACTOR, "locked out by the provider's groups:", user, None)


def _keep_a_password(user: User) -> None:
    """Raise Conflict if this is the last administrator with a password. Two log-ins at once see each other's change."""
    if is_cluster_admin(user) and user.has_usable_password():
        list(active_admins().select_for_update().order_by("pk"))
        keep_an_admin(user)
