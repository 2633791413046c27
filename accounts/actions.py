"""Changes of accounts by administrators. Each takes effect in every process at once, and the audit records it."""

from axes.utils import reset
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, QuerySet

from accounts.models import ApiToken, OneTimeLink
from accounts.passwords import INVITATION, RESET, Handout, hand_out_link
from accounts.topics import ACCOUNTS
from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Seen
from core.errors import Conflict, NotFound, field_error
from core.live import publish
from core.registered_rows import in_words
from core.roles import Role, require_cluster_admin, role_of, viewers
from core.text import checked_name

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
_MAX_NAME = 150
_KIND = "user"


@transaction.atomic
def invite(actor: User, username: str, role: str) -> Handout:
    """Create a user without a password. Return the link by which the user sets one."""
    require_cluster_admin(actor)
    name, role = _checked_username(username), _checked_role(role)
    if OneTimeLink.objects.filter(user__last_login=None).count() >= MAX_OPEN_INVITATIONS:
        raise Conflict(f"There are {MAX_OPEN_INVITATIONS} open invitations: revoke those that are no longer needed.")
    user = User(username=name)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError:
        raise _taken(name) from None
    _store_role(user, role)
    audit(actor, "invited", kind=_KIND, key=user.pk, name=name, after={"role": role.label})
    return hand_out_link(user, INVITATION, actor)


@transaction.atomic
def withdraw_invitation(actor: User, user_id: int) -> None:
    """Delete a user who never logged in, which frees the name."""
    user = _locked(actor, user_id)
    if user.last_login is not None or user.has_usable_password():
        raise Conflict(f"{user.username} already has a password: deactivate the account instead.")
    audit(actor, "revoked the invitation of", kind=_KIND, key=user.pk, name=user.username, before=_facts(user))
    try:
        user.delete()
    except ProtectedError as error:
        owned = in_words(error.protected_objects, actor)
        raise Conflict(f"{user.username} owns {owned}: deactivate the account instead.") from None


@transaction.atomic
def change_role(actor: User, user_id: int, role: str, seen: Seen = UNSEEN) -> User:
    user, new = _locked(actor, user_id), _checked_role(role)
    present = role_of(user)
    merged = seen.merged({"role": role}, {"role": present.value}, lambda: authors_of(_KIND, user.pk))
    new = Role(merged.get("role", present))
    if new != Role.CLUSTER_ADMIN:
        _keep_an_admin(user)
    before = _facts(user)
    _store_role(user, new)
    _changed(actor, "changed", user, before)
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
    _keep_an_admin(user)
    before = _facts(user)
    user.is_active = False
    user.set_unusable_password()
    user.save(update_fields=["is_active", "password"])
    ApiToken.objects.filter(user=user).delete()
    OneTimeLink.objects.filter(user=user).delete()
    _changed(actor, "deactivated", user, before)
    return user


@transaction.atomic
def activate(actor: User, user_id: int) -> Handout:
    """Reactivate a deactivated user. Return the link by which the user sets a new password."""
    user = _locked(actor, user_id)
    if user.is_active:
        raise Conflict(f"{user.username} is already active.")
    before = _facts(user)
    user.is_active = True
    user.save(update_fields=["is_active"])
    _changed(actor, "activated", user, before)
    return hand_out_link(user, RESET, actor)


@transaction.atomic
def reset_password(actor: User, user_id: int) -> Handout:
    """End the password and all sessions, but keep tokens. Return a link for a new password; an earlier link ends."""
    user = _locked(actor, user_id)
    if user.pk == actor.pk:
        raise Conflict("This is your own account: change its password on your account page.")
    if not user.is_active:
        raise Conflict(f"{user.username} is deactivated: activate the account to get a link.")
    _keep_an_admin(user)
    is_new = user.last_login is None and not user.has_usable_password()
    user.set_unusable_password()
    user.save(update_fields=["password"])
    reset(username=user.username)
    _changed(actor, "created another link for" if is_new else "reset the password of", user, None)
    return hand_out_link(user, INVITATION if is_new else RESET, actor)


def _locked(actor: User, user_id: int) -> User:
    """Lock all administrators, then the user: concurrent changes must not remove the last administrator."""
    require_cluster_admin(actor)
    admins = {user.pk: user for user in _admins().select_for_update().order_by("pk")}
    if actor.pk not in admins:
        raise Conflict("You are no longer an administrator: your account has just been changed.")
    user = admins.get(user_id) or User.objects.select_for_update().filter(pk=user_id).first()
    if user is None:
        raise NotFound(f"User {user_id} not found: look it up in the list.")
    return user


def _admins() -> QuerySet[User]:
    return User.objects.filter(is_staff=True, is_active=True)


def _keep_an_admin(user: User) -> None:
    able = _admins().exclude(password__startswith=UNUSABLE_PASSWORD_PREFIX)
    if not able.exclude(pk=user.pk).exists():
        raise Conflict(f"{user.username} is the last administrator: make another user an administrator first.")


def _store_role(user: User, role: Role) -> None:
    user.is_staff = role == Role.CLUSTER_ADMIN
    user.is_superuser = user.is_superuser and user.is_staff
    user.save(update_fields=["is_staff", "is_superuser"])
    if role == Role.VIEWER:
        user.groups.add(viewers())
    else:
        user.groups.remove(viewers())


def _changed(actor: User, verb: str, user: User, before: dict[str, str] | None) -> None:
    after = None if before is None else _facts(user)
    audit(actor, verb, kind=_KIND, key=user.pk, name=user.username, before=before, after=after)
    publish(ACCOUNTS, "append", {"users": [user.pk]})


def _facts(user: User) -> dict[str, str]:
    return {"role": role_of(user).label, "state": "active" if user.is_active else "deactivated"}


def _checked_role(role: str) -> Role:
    if role not in Role.values:
        raise field_error("role", f"The role must be one of {', '.join(Role.values)}.")
    return Role(role)


def _checked_username(text: str) -> str:
    """Return the normalized name, which no other user has in any case and which can name a folder."""
    name = User.normalize_username(checked_name(text, field="username", limit=_MAX_NAME))
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError:
        raise field_error("username", "Use only letters, digits and @ . + - _.") from None
    if User.objects.filter(username__iexact=name).exists():
        raise _taken(name)
    return name


def _taken(name: str) -> Conflict:
    sentence = f"There is already a user {name!r}: choose another name, or reset that user's password."
    return Conflict(sentence, fields={"username": [sentence]})
