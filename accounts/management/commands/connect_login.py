"""Let a person of the organization's provider log in as a user who is here already."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.organization.arrivals import connect
from accounts.queries import find_user
from core.errors import UserError

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Let a person of the OpenID provider log in as a user who is here already. The password stays valid."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="Name of the user here.")
        parser.add_argument("subject", help="The provider's own name for the person: its claim sub.")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.OIDC is None:
            raise CommandError("This site has no OpenID provider: set TIDEPOOL_OIDC_ISSUER first.")
        try:
            user = find_user(options["username"])
            connect(user, settings.OIDC.issuer, options["subject"])
        except UserError as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"{user.username} logs in with {settings.OIDC.name} from now on, as {options['subject']}.")
