"""Celery task of the usage rollup."""

from celery import shared_task
from django.utils import timezone

from usage.rollup import roll_up

__all__ = ["roll_up_usage"]


@shared_task(name="usage.tasks.roll_up_usage", ignore_result=True)  # type: ignore[untyped-decorator]
def roll_up_usage() -> None:
    """Store the sums of the hours that have ended. Repeated and concurrent calls do nothing."""
    roll_up(timezone.now())
