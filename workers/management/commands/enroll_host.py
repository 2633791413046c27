"""`manage.py enroll_host`: enrolls hosts that join without a token."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from core.errors import UserError
from workers.actions import enroll_host
from workers.models import Host


class Command(BaseCommand):
    help = "Enroll hosts of these names, so that they may report. Machines that join with a token do not need this."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("names", nargs="+", metavar="name", help="the host's TIDEPOOL_HOST_NAME")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in options["names"]:
            if Host.objects.filter(name=name).exists():
                continue
            try:
                enroll_host(name, "enroll_host")
            except UserError as error:
                raise CommandError(f"{name}: {error.message}") from None
        self.stdout.write(f"May report: {', '.join(options['names'])}.")
