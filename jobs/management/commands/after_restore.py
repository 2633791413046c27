"""`manage.py after_restore`: run once after a restore of the database, before Tidepool starts."""

from typing import Any

from django.contrib.sessions.models import Session
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from jobs.control.checkpoints import catch_up_with_folders
from jobs.control.job_end import requeue_interrupted
from jobs.models import SchedulerLease
from workers.models import JoinToken


class Command(BaseCommand):
    help = (
        "Queue every training that was running in the backup, raise numbers above those of the folders of trainings, "
        "and revoke what may have been revoked since the backup: sessions and join tokens."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        if SchedulerLease.objects.filter(expires_at__gt=timezone.now()).exists():
            raise CommandError("A scheduler is running: stop web, scheduler, control and background first.")
        queued = requeue_interrupted()
        caught_up = catch_up_with_folders()
        sessions, _ = Session.objects.all().delete()
        tokens, _ = JoinToken.objects.all().delete()
        self.stdout.write(
            f"{queued} trainings that ran wait again; {caught_up} had newer records in their folders than the backup."
        )
        self.stdout.write(f"{sessions} sessions and {tokens} join tokens are revoked.")
        self.stdout.write("What was changed since the backup is as it was: look at users, API tokens and the queue.")
