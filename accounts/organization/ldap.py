"""Log-in with the password of an LDAP directory, by django-auth-ldap. Imported only where the site has a directory."""

import logging
from typing import Any

import ldap
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django_auth_ldap import config as ldap_types
from django_auth_ldap.backend import LDAPBackend, ldap_error

from accounts.authentication import Passwords, address_of
from accounts.models import Identity
from accounts.organization.arrivals import Person, arrive, site_table
from accounts.organization.config import GROUP_TYPES, LDAP_PROVIDER, LdapConfig
from accounts.verification_limits import verifying
from core.errors import Unavailable

__all__ = ["Directory", "report_errors"]

logger = logging.getLogger(__name__)

_CONNECT_SECONDS, _ANSWER_SECONDS = 5, 10


class Directory(LDAPBackend):  # type: ignore[misc]
    """The directory's passwords. Users with a password of this site never meet it, so they can log in without it."""

    @property
    def default_settings(self) -> dict[str, Any]:
        return _settings_of(_config())

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Return the user. Raises Unavailable, and NotAllowed and Conflict after a correct password."""
        if username is None or _is_local(username):
            return None
        with verifying.turn(address_of(request) if request is not None else ""):
            found: User | None = super().authenticate(request, username=username, password=password)
        return found

    def get_or_build_user(self, username: str, ldap_user: Any) -> tuple[User, bool]:
        """Return the user of somebody whose password is correct."""
        config = _config()
        name, groups = ldap_user.attrs[config.user_attribute][0], frozenset(ldap_user.group_names)
        return arrive(Person(LDAP_PROVIDER, config.name, name.casefold(), name, groups), site_table()), False

    def get_user(self, user_id: int) -> User | None:
        """Return the active user of a session."""
        return Passwords().get_user(user_id)


def report_errors() -> None:
    """Raise Unavailable for each error of the directory, which django-auth-ldap would take for a wrong password."""
    ldap_error.connect(_say, dispatch_uid="tidepool")


def _say(sender: object, context: str, exception: Exception, **_: Any) -> None:
    logger.warning("the directory failed (%s): %r", context, exception)
    name = _config().name
    raise Unavailable(
        f"{name[0].upper()}{name[1:]}, which has your password, does not answer: try again in a minute, or tell an "
        "administrator."
    )


def _config() -> LdapConfig:
    config: LdapConfig | None = settings.LDAP
    assert config is not None, "without a directory, the settings do not name this backend"
    return config


def _is_local(username: str) -> bool:
    """Return whether a user of this name has a password here, and none in the directory."""
    user = User.objects.filter(username__iexact=username).first()
    is_of_directory = user is not None and Identity.objects.filter(user=user, provider=LDAP_PROVIDER).exists()
    return user is not None and user.has_usable_password() and not is_of_directory


def _settings_of(config: LdapConfig) -> dict[str, Any]:
    """Return what django-auth-ldap would read from the settings as AUTH_LDAP_*."""
    search = ldap_types.LDAPSearch
    options = {
        ldap.OPT_NETWORK_TIMEOUT: _CONNECT_SECONDS,
        ldap.OPT_TIMEOUT: _ANSWER_SECONDS,
        ldap.OPT_REFERRALS: 0,
        ldap.OPT_X_TLS_REQUIRE_CERT: ldap.OPT_X_TLS_DEMAND,
        **({ldap.OPT_X_TLS_CACERTFILE: config.ca_file} if config.ca_file else {}),
        # The last one: it makes those above count.
        ldap.OPT_X_TLS_NEWCTX: 0,
    }
    return {
        "SERVER_URI": config.url,
        "START_TLS": config.starts_tls,
        "CONNECTION_OPTIONS": options,
        "BIND_DN": config.bind_dn,
        "BIND_PASSWORD": config.bind_password,
        "USER_SEARCH": search(config.users, ldap.SCOPE_SUBTREE, f"({config.user_attribute}=%(user)s)"),
        "GROUP_SEARCH": search(config.groups, ldap.SCOPE_SUBTREE, f"(objectClass={config.group_class})"),
        "GROUP_TYPE": getattr(ldap_types, GROUP_TYPES[config.group_class])(),
        "ALWAYS_UPDATE_USER": False,
    }
