"""Changes of accounts by administrators. Each takes effect in every process at once, and the audit records it."""

from axes.utils import reset
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import ProtectedError

from accounts.account_rows import (
    KIND,
    active_admins,
    checked_username,
    create_user,
    facts,
    keep_an_admin,
    record_change,
    store_role,
)
from accounts.models import ApiToken, OneTimeLink
from accounts.passwords import INVITATION, RESET, Handout, hand_out_link
from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Seen
from core.errors import Conflict, existing, field_error
from core.registered_rows import in_words
from core.roles import Role, require_cluster_admin, role_of

__all__ = [
    "MAX_OPEN_INVITATIONS",
    "activate",
    "change_role",
    "deactivate",
    "invite",
    "reset_password",
    "withdraw_invitation",
]

#: Limit on invited users who never logged in, so that a stolen administrator's session cannot fill the database.
MAX_OPEN_INVITATIONS = 200


@transaction.atomic
def invite(actor: User, username: str, role: str) -> Handout:
    """Create a user without a password. Return the link by which the user sets one."""
    require_cluster_admin(actor)
    name, role = checked_username(username), _checked_role(role)
    if OneTimeLink.objects.filter(user__last_login=None).count() >= MAX_OPEN_INVITATIONS:
        raise Conflict(f"There are {MAX_OPEN_INVITATIONS} open invitations: revoke those that are no longer needed.")
    user = create_user(name, role)
    audit(actor, "invited", kind=KIND, key=user.pk, name=name, after={"role": role.label})
    return hand_out_link(user, INVITATION, actor)


@transaction.atomic
def withdraw_invitation(actor: User, user_id: int) -> None:
    """Delete a user who never logged in, which frees the name."""
    user = _locked(actor, user_id)
    if user.last_login is not None or user.has_usable_password():
        raise Conflict(f"{user.username} already has a password: deactivate the account instead.")
    audit(actor, "revoked the invitation of", kind=KIND, key=user.pk, name=user.username, before=facts(user))
    try:
        user.delete()
    except ProtectedError as error:
        owned = in_words(error.protected_objects, actor)
        raise Conflict(f"{user.username} owns {owned}: deactivate the account instead.") from None


@transaction.atomic
def change_role(actor: User, user_id: int, role: str, seen: Seen = UNSEEN) -> User:
    user, new = _locked(actor, user_id), _checked_role(role)
    present = role_of(user)
    merged = seen.merged({"role": role}, {"role": present.value}, lambda: authors_of(KIND, user.pk))
    new = Role(merged.get("role", present))
    if new != Role.CLUSTER_ADMIN:
        keep_an_admin(user)
    before = facts(user)
    store_role(user, new)
    record_change(actor, "changed", user, before)
    return user


@transaction.atomic
def deactivate(actor: User, user_id: int) -> User:
    """End the user's sessions, websockets and tokens at once. The user's trainings go on.

    The password is removed, too: otherwise, reactivating the account would make old sessions valid again.
    """
    user = _locked(actor, user_id)
    if user.pk == actor.pk:
        raise Conflict("This is your own account: ask another administrator to deactivate it.")
    if not user.is_active:
        raise Conflict(f"{user.username} is already deactivated.")
    keep_an_admin(user)
    before = facts(user)
    user.is_active = False
    user.set_unusable_password()
    user.save(update_fields=["is_active", "password"])
    ApiToken.objects.filter(user=user).delete()
    OneTimeLink.objects.filter(user=user).delete()
    record_change(actor, "deactivated", user, before)
    return user


@transaction.atomic
def activate(actor: User, user_id: int) -> Handout:
    """Reactivate a deactivated user. Return the link by which the user sets a new password."""
    user = _locked(actor, user_id)
    if user.is_active:
        raise Conflict(f"{user.username} is already active.")
    before = facts(user)
    user.is_active = True
    user.save(update_fields=["is_active"])
    record_change(actor, "activated", user, before)
    return hand_out_link(user, RESET, actor)


@transaction.atomic
def reset_password(actor: User, user_id: int) -> Handout:
    """End the password and all sessions, but keep tokens. Return a link for a new password; an earlier link ends."""
    user = _locked(actor, user_id)
    if user.pk == actor.pk:
        raise Conflict("This is your own account: change its password on your account page.")
    if not user.is_active:
        raise Conflict(f"{user.username} is deactivated: activate the account to get a link.")
    keep_an_admin(user)
    is_new = user.last_login is None and not user.has_usable_password()
    user.set_unusable_password()
    user.save(update_fields=["password"])
    reset(username=user.username)
    record_change(actor, "created another link for" if is_new else "reset the password of", user, None)
    return hand_out_link(user, INVITATION if is_new else RESET, actor)


def _locked(actor: User, user_id: int) -> User:
    """Lock all administrators, then the user: concurrent changes must not remove the last administrator."""
    require_cluster_admin(actor)
    admins = {user.pk: user for user in active_admins().select_for_update().order_by("pk")}
    if actor.pk not in admins:
        raise Conflict("You are no longer an administrator: your account has just been changed.")
    user = admins.get(user_id) or User.objects.select_for_update().filter(pk=user_id).first()
    return existing(user, f"user {user_id}")


def _checked_role(role: str) -> Role:
    if role not in Role.values:
        raise field_error("role", f"The role must be one of {', '.join(Role.values)}.")
    return Role(role)
