"""API tokens, programs' requests for tokens, one-time links, and users of an organization's provider."""

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import models

__all__ = ["ApiToken", "DeviceGrant", "Identity", "OneTimeLink", "ProviderSession"]


class ApiToken(models.Model):
    """A bearer token. Only its hash is stored: the token is shown once, when it is created."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=64)
    #: sha256 of the token, which is random enough to need no slow hash.
    digest = models.CharField(max_length=64, unique=True)
    #: Scope of the token; see `core.scopes`.
    scope = models.CharField(max_length=32, default="full")
    created_at = models.DateTimeField(auto_now_add=True)
    #: Expiry; None: the token is valid until it is withdrawn.
    expires_at = models.DateTimeField(null=True, blank=True)
    #: For a log-on of WMLA's clients, the user's session hash at that time: a changed password ends the token. Else "".
    session_hash = models.CharField(max_length=128, blank=True, default="")
    #: Time of the last use, to the minute.
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="one_api_token_of_a_name"),
            models.CheckConstraint(
                condition=models.Q(scope__in=["read", "submit", "full"]) | models.Q(scope__startswith="job:"),
                name="api_token_has_a_scope",
            ),
        ]


class DeviceGrant(models.Model):
    """A program's request for a token, which a user confirms in a browser. Deleted once the program has the token."""

    #: sha256 of the program's secret, and of the code that the user types.
    device_digest = models.CharField(max_length=64, unique=True)
    code_digest = models.CharField(max_length=64, unique=True)
    #: Name of the machine, as the program sends it, and the program's network address.
    machine = models.CharField(max_length=64)
    address = models.CharField(max_length=64)
    scope = models.CharField(max_length=32)
    expires_at = models.DateTimeField()
    #: User who confirmed the request; None until then.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")


class OneTimeLink(models.Model):
    """A link that lets a user set a password without the old one, after an invitation or a reset. Used once."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="one_time_link")
    #: sha256 of the secret in its address, which is shown once.
    digest = models.CharField(max_length=64)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()


class Identity(models.Model):
    """The person at an organization's provider who logs in as this user. A user without one has a password here."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identity")
    #: Issuer of the provider.
    provider = models.CharField(max_length=255)
    #: The provider's own and unchanging name for the person.
    subject = models.CharField(max_length=255)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "subject"], name="one_user_of_a_person")]


class ProviderSession(models.Model):
    """A session that began with a log-in at the provider, so that a log-out there can end it."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="provider_session")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="provider_sessions")
    #: The provider's name for its own session; "": the provider names none.
    sid = models.CharField(max_length=255, blank=True, default="", db_index=True)
    started_at = models.DateTimeField()
