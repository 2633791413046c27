"""`manage.py tidy`: deletes rows that nobody looks at any more."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from jobs.control.tidying import HISTORY, READINGS, tidy


class Command(BaseCommand):
    help = (
        f"Delete events and sizes of trainings that ended over {HISTORY.days} days ago, readings of GPUs that have "
        f"said nothing for {READINGS.days} days, and sessions that have expired. The scheduler does it once an hour."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        deleted = tidy(timezone.now(), budget_seconds=float("inf"))
        told = [f"{count} {what}" for what, count in deleted.items() if count]
        self.stdout.write(f"Deleted {', '.join(told)}." if told else "There was nothing to delete.")
