"""Adds up all usage anew."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from jobs.gpu_time import HOUR, moment
from usage.models import UsageMark
from usage.rollup import rebuild

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Add up the usage of all GPUs anew from the claims, in one transaction. Only after the sums were damaged."

    def handle(self, *args: Any, **options: Any) -> None:
        rebuild(timezone.now())
        mark = UsageMark.objects.first()
        if mark is None:
            self.stdout.write("No GPU was ever held: there is nothing to add up.")
            return
        first, until = (moment(hour * HOUR).strftime("%Y-%m-%d %H:%M") for hour in (mark.from_hour, mark.until_hour))
        self.stdout.write(f"Usage from {first} to {until} UTC is added up anew.")
