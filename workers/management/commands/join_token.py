"""`manage.py join_token`: creates a token with which machines become GPU hosts."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from core.errors import UserError
from core.text import plural
from workers.join_limits import words_of
from workers.join_tokens import create_join_token, join_command


class Command(BaseCommand):
    help = "Create a token with which machines join as GPU hosts, and print the command to run on them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--hosts", type=int, default=1, help="number of machines that may use the token (default 1)"
        )
        parser.add_argument("--hours", type=float, default=24.0, help="hours for which the token is valid (default 24)")
        parser.add_argument(
            "--names", default="", help="names of the hosts that may use it, such as 'gpu-*' (default any)"
        )
        parser.add_argument("--networks", default="", help="networks from which it may be used, such as 10.1.0.0/16")
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="URL at which the machine reaches the site")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            token, row = create_join_token(
                "join_token",
                hosts=options["hosts"],
                hours=options["hours"],
                names=words_of(options["names"]),
                networks=words_of(options["networks"]),
            )
        except UserError as error:
            raise CommandError(error.message) from None
        machines = plural(row.hosts_left, "One machine", "{count} machines")
        self.stderr.write(f"{machines} may join until {row.expires_at:%Y-%m-%d %H:%M} UTC, with this command:")
        self.stdout.write(join_command(options["url"], token))
