"""Settings of log-in with an organization's provider."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from accounts.organization.config import OidcConfig
from accounts.organization.group_table import GroupTable, GroupTableError, read_group_table
from webapp.environment import Environment

__all__ = ["group_table", "oidc_config"]

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


def _readable(environment: Environment, name: str) -> str:
    file = environment.text(name, "")
    if file and not os.access(file, os.R_OK):
        raise ImproperlyConfigured(f"{name} names {file}, which cannot be read: let this user read it.")
    return file
