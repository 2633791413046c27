"""`manage.py migrate`: Django's own, which refuses the database of an earlier version."""

from typing import Any

from django.core.management.commands import migrate

from webapp.embedded.home import refuse_earlier_home


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        refuse_earlier_home(options["database"])
        super().handle(*args, **options)
