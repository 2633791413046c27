"""`manage.py fill_home`: does for services that are started one by one what `up` does for a new home."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from webapp.embedded.home import admin_password, close_database, prepare_home, refuse_earlier_home
from webapp.initial_data import fill_home, has_admin


class Command(BaseCommand):
    help = "Add the initial data of a new home: the administrator, resource groups, and the digits with their model."

    def handle(self, *args: Any, **options: Any) -> None:
        prepare_home(settings.TIDEPOOL_HOME)
        close_database(settings.DATABASES["default"])
        refuse_earlier_home()
        password, _ = admin_password(settings.TIDEPOOL_HOME, settings.TIDEPOOL_ADMIN_PASSWORD, has_admin=has_admin())
        fill_home(password)
        self.stdout.write(f"{settings.TIDEPOOL_HOME} already has its initial data.")
