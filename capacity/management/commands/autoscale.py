"""`manage.py autoscale`: start and stop hosts of fleets as trainings want them."""

from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from capacity.autoscaler import Autoscaler
from capacity.fleets import FleetsError, read_fleets
from capacity.models import AutoscalerLease
from core.claims import Claim, ClaimLost, Claims
from core.process import stop_at_signals, take_turns
from core.text import plural

__all__ = ["Command"]

_TURN_SECONDS = 2.0
_LEASE = Claims(AutoscalerLease, duration=timedelta(seconds=30), waiting={"claim": ""})


class Command(BaseCommand):
    help = "Start and stop hosts of the fleets in TIDEPOOL_FLEETS_FILE. Any number may run: one acts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only check the file of fleets")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.TIDEPOOL_FLEETS_FILE is None:
            raise CommandError("Set TIDEPOOL_FLEETS_FILE to the file that describes the fleets.")
        try:
            fleets = read_fleets(settings.TIDEPOOL_FLEETS_FILE)
        except FleetsError as error:
            raise CommandError(str(error)) from None
        names = ", ".join(fleet.name for fleet in fleets)
        self.stdout.write(f"{plural(len(fleets), '{count} fleet', '{count} fleets')}: {names}")
        if not options["check"]:
            _Leader(settings.TIDEPOOL_FLEETS_FILE).run()


class _Leader:
    """Acts while this process holds the lease."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._claim: Claim[AutoscalerLease] | None = None
        self._autoscaler = Autoscaler(file)

    def run(self) -> None:
        AutoscalerLease.objects.get_or_create(pk=1)
        take_turns(stop_at_signals(), self._turn, pause_seconds=_TURN_SECONDS)
        self._autoscaler.leave()
        if self._claim is not None:
            _LEASE.release(self._claim)

    def _turn(self) -> bool:
        now = timezone.now()
        if self._claim is None:
            self._claim = _LEASE.claim(1, now)
            return False if self._claim is None else self._autoscaler.turn()
        try:
            _LEASE.renew(self._claim, now)
        except ClaimLost:
            self._autoscaler.leave()
            self._claim, self._autoscaler = None, Autoscaler(self._file)
            return False
        return self._autoscaler.turn()
