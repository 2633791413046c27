"""Settings of log-in with an organization's OpenID provider or LDAP directory."""

import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from accounts.organization.config import GROUP_TYPES, LdapConfig, OidcConfig
from accounts.organization.group_table import GroupTable, GroupTableError, read_group_table
from webapp.environment import Environment

__all__ = ["group_table", "ldap_config", "oidc_config"]

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def oidc_config(environment: Environment) -> OidcConfig | None:
    """Return the provider's configuration; None: there is none."""
    issuer = environment.text("TIDEPOOL_OIDC_ISSUER", "")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_safe or not parts.hostname or parts.query or parts.fragment:
        raise ImproperlyConfigured(
            f"TIDEPOOL_OIDC_ISSUER is {issuer!r}: set it to the provider's issuer, such as https://login.example.org."
        )
    client_id = environment.text("TIDEPOOL_OIDC_CLIENT_ID", "")
    if not client_id:
        raise ImproperlyConfigured("TIDEPOOL_OIDC_ISSUER is set, but TIDEPOOL_OIDC_CLIENT_ID is not: set both.")
    scopes = environment.text("TIDEPOOL_OIDC_SCOPES", "openid profile email")
    if "openid" not in scopes.split():
        raise ImproperlyConfigured("TIDEPOOL_OIDC_SCOPES lacks the scope openid: add it.")
    return OidcConfig(
        issuer=issuer,
        client_id=client_id,
        client_secret=environment.text("TIDEPOOL_OIDC_CLIENT_SECRET", ""),
        name=environment.text("TIDEPOOL_OIDC_NAME", parts.hostname),
        scopes=scopes,
        username_claim=environment.text("TIDEPOOL_OIDC_USERNAME_CLAIM", "preferred_username"),
        groups_claim=environment.text("TIDEPOOL_OIDC_GROUPS_CLAIM", "groups"),
        ca_file=_readable(environment, "TIDEPOOL_OIDC_CA_FILE"),
    )


def ldap_config(environment: Environment) -> LdapConfig | None:
    """Return the directory's configuration; None: there is none."""
    url = environment.text("TIDEPOOL_LDAP_URL", "")
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or parts.path not in ("", "/"):
        raise ImproperlyConfigured(
            f"TIDEPOOL_LDAP_URL is {url!r}: set it to the directory's address, such as ldaps://ldap.example.org."
        )
    if find_spec("django_auth_ldap") is None:
        raise ImproperlyConfigured("TIDEPOOL_LDAP_URL is set, but the packages for LDAP are missing: make setup-ldap.")
    group_class = environment.text("TIDEPOOL_LDAP_GROUP_CLASS", "groupOfNames")
    if group_class not in GROUP_TYPES:
        raise ImproperlyConfigured(f"TIDEPOOL_LDAP_GROUP_CLASS is {group_class!r}: use {', '.join(GROUP_TYPES)}.")
    return LdapConfig(
        url=url,
        name=environment.text("TIDEPOOL_LDAP_NAME", "the directory"),
        bind_dn=environment.text("TIDEPOOL_LDAP_BIND_DN", ""),
        bind_password=environment.text("TIDEPOOL_LDAP_BIND_PASSWORD", ""),
        users=_required(environment, "TIDEPOOL_LDAP_USERS"),
        groups=_required(environment, "TIDEPOOL_LDAP_GROUPS"),
        user_attribute=environment.text("TIDEPOOL_LDAP_USER_ATTRIBUTE", "uid"),
        group_class=group_class,
        ca_file=_readable(environment, "TIDEPOOL_LDAP_CA_FILE"),
        starts_tls=parts.scheme == "ldap" and parts.hostname not in _LOOPBACK,
    )


def group_table(environment: Environment, *, is_needed: bool) -> GroupTable | None:
    """Return the table of the provider's groups; None: there is no provider.

    is_needed: a provider is configured, so that the table must be there.
    """
    if not is_needed:
        return None
    name = "TIDEPOOL_LOGIN_GROUPS_FILE"
    if not environment.text(name, ""):
        raise ImproperlyConfigured(
            f"{name} is not set: name a file that says which groups of the provider may log in, and with which role."
        )
    try:
        return read_group_table(environment.folder(name, Path()))
    except GroupTableError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


def _required(environment: Environment, name: str) -> str:
    if not (text := environment.text(name, "")):
        raise ImproperlyConfigured(
            f"TIDEPOOL_LDAP_URL is set, but {name} is not: set it to the entry above them, such as "
            "ou=people,dc=example,dc=org."
        )
    return text


def _readable(environment: Environment, name: str) -> str:
    file = environment.text(name, "")
    if file and not os.access(file, os.R_OK):
        raise ImproperlyConfigured(f"{name} names {file}, which cannot be read: let this user read it.")
    return file
