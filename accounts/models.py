"""API tokens, programs' requests for tokens, and one-time links."""

from django.conf import settings
from django.db import models

__all__ = ["ApiToken", "DeviceGrant", "OneTimeLink"]


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
