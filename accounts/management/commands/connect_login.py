"""Let a person of the organization's provider or directory log in as a user of this site."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.organization.arrivals import connect
from accounts.organization.config import LDAP_PROVIDER
from accounts.queries import find_user
from core.errors import UserError

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Let a person of the OpenID provider, or of the LDAP directory, log in as a user of this site."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="Name of the user here.")
        parser.add_argument("subject", help="The provider's claim sub, or the person's name in the directory.")
        parser.add_argument("--ldap", action="store_true", help="The person is in the directory.")

    def handle(self, *args: Any, **options: Any) -> None:
        provider, name = _provider(of_directory=options["ldap"])
        subject = options["subject"].casefold() if options["ldap"] else options["subject"]
        try:
            user = find_user(options["username"])
            connect(user, provider, subject)
        except UserError as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"{user.username} logs in with {name} from now on, as {subject}.")


def _provider(*, of_directory: bool) -> tuple[str, str]:
    """Return the provider in `Identity`, and its name."""
    if of_directory:
        if settings.LDAP is None:
            raise CommandError("This site has no directory: set TIDEPOOL_LDAP_URL first.")
        return LDAP_PROVIDER, settings.LDAP.name
    if settings.OIDC is None:
        raise CommandError("This site has no OpenID provider: set TIDEPOOL_OIDC_ISSUER first.")
    return settings.OIDC.issuer, settings.OIDC.name
