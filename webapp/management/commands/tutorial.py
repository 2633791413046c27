"""`manage.py tutorial`: plays the tutorial over REST as an ordinary user, and shows a table of its moments."""

import base64
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError
from tidepool.client.api import Client
from tidepool.client.errors import TidepoolError

from accounts.tokens import create_token
from webapp.tutorial import moments
from webapp.tutorial.history import leave_history
from webapp.tutorial.play import Api, ApiError, MomentMissed, Tutorial

_USER = "tutorial"
_BEARER = "Bearer "


class Command(BaseCommand):
    help = (
        "Two elastic trainings share the cluster: T1 takes every GPU, gives T2 its half, gives more when T2's priority "
        "rises, and T2 takes all when T1 ends. Succeeds only if every moment was seen."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the site")
        parser.add_argument(
            "--user", help="log in as this user (default: an ordinary user `tutorial`, made in this home's database)"
        )
        parser.add_argument("--password-file", type=Path, help="file that holds the password of --user")
        parser.add_argument("--deadline", type=float, default=90.0, help="seconds that each moment is waited for")
        parser.add_argument("--look", type=float, default=4.0, help="seconds that each moment is left to look at")
        parser.add_argument(
            "--history",
            action="store_true",
            help="then submit trainings whose history What if can replay; not for --user",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["history"] and options["user"]:
            raise CommandError("--history is for this home's own user: leave out --user.")
        try:
            authorization = _authorization(options["user"], options["password_file"])
            api = Api(options["url"], authorization)
            tutorial = Tutorial(api, self._say, options["deadline"], options["look"])
        except ApiError as error:
            raise CommandError(str(error)) from None
        missed: str | None = None
        try:
            tutorial.play()
        except (MomentMissed, ApiError) as error:
            missed = str(error)
        for line in moments.table(tutorial.seen):
            self._say(line)
        if missed is not None:
            raise CommandError(missed)
        self._say(f"All {len(tutorial.seen)} moments were seen.")
        if options["history"]:
            self._leave_history(tutorial, authorization.removeprefix(_BEARER))

    def _leave_history(self, tutorial: Tutorial, token: str) -> None:
        try:
            with Client(tutorial.api.site, token) as client:
                leave_history(tutorial, client)
        except (ApiError, TidepoolError) as error:
            raise CommandError(f"The trainings for What if could not be submitted: {error}") from None

    def _say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()


def _token_of_ordinary_user() -> str:
    try:
        user, is_new = User.objects.get_or_create(username=_USER)
    except (OperationalError, ProgrammingError):
        raise CommandError(
            "This home has no database yet: start `manage.py up` first, or name an account with --user."
        ) from None
    if is_new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return create_token(user)


def _authorization(user: str | None, password_file: Path | None) -> str:
    if user is None:
        return _BEARER + _token_of_ordinary_user()
    if password_file is None:
        raise CommandError("--user needs --password-file: a file that holds the password.")
    try:
        password = password_file.read_text().strip()
    except OSError as error:
        raise CommandError(f"{password_file} cannot be read ({error.strerror}).") from None
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
