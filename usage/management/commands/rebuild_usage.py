"""Rebuilds all stored sums of usage."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from jobs.gpu_time import HOUR, moment
from usage.models import UsageMark
from usage.rollup import rebuild

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Rebuild the usage of all GPUs from the claims, in one transaction. Needed only if the sums were damaged."

    def handle(self, *args: Any, **options: Any) -> None:
        rebuild(timezone.now())
        mark = UsageMark.objects.first()
        if mark is None:
            self.stdout.write("No GPU was ever held: there is nothing to rebuild.")
            return
        first, until = (moment(hour * HOUR).strftime("%Y-%m-%d %H:%M") for hour in (mark.from_hour, mark.until_hour))
        self.stdout.write(f"Rebuilt the usage from {first} to {until} UTC.")
