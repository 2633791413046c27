"""`manage.py migrate`: Django's own, which refuses the database of an earlier version."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate

from webapp.embedded.home import EarlierHome, refuse_earlier_home


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            refuse_earlier_home(options["database"])
        except EarlierHome as error:
            raise CommandError(str(error)) from None
        super().handle(*args, **options)
