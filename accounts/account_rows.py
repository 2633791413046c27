"""Parts of every change of an account: its checked name, its stored role, and the record of the change."""

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.topics import ACCOUNTS
from core.audit.entries import audit
from core.errors import Conflict, field_error
from core.live import publish
from core.roles import Role, role_of, viewers
from core.text import checked_name

__all__ = [
    "KIND",
    "active_admins",
    "checked_username",
    "create_user",
    "facts",
    "keep_an_admin",
    "record_change",
    "store_role",
]

#: Kind of an account in the audit.
KIND = "user"
_MAX_NAME = 150


def active_admins() -> QuerySet[User]:
    return User.objects.filter(is_staff=True, is_active=True)


def keep_an_admin(user: User) -> None:
    """Raise Conflict if, without this user, no administrator could log in with a password."""
    able = active_admins().exclude(password__startswith=UNUSABLE_PASSWORD_PREFIX)
    if not able.exclude(pk=user.pk).exists():
        raise Conflict(f"{user.username} is the last administrator: make another user an administrator first.")


def create_user(name: str, role: Role) -> User:
    """Create a user without a password, in the caller's transaction. name: as `checked_username` returns it."""
    user = User(username=name)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError:
        raise _taken(name) from None
    store_role(user, role)
    return user


def store_role(user: User, role: Role) -> None:
    user.is_staff = role == Role.CLUSTER_ADMIN
    user.is_superuser = user.is_superuser and user.is_staff
    user.save(update_fields=["is_staff", "is_superuser"])
    if role == Role.VIEWER:
        user.groups.add(viewers())
    else:
        user.groups.remove(viewers())


def record_change(actor: User | str, verb: str, user: User, before: dict[str, str] | None) -> None:
    """Audit a change of the account, and have its open pages check whether they may stay open.

    before: facts from before the change; None: the verb says everything.
    """
    after = None if before is None else facts(user)
    audit(actor, verb, kind=KIND, key=user.pk, name=user.username, before=before, after=after)
    publish(ACCOUNTS, "append", {"users": [user.pk]})


def facts(user: User) -> dict[str, str]:
    return {"role": role_of(user).label, "state": "active" if user.is_active else "deactivated"}


def checked_username(text: str) -> str:
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
