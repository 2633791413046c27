"""The Celery task that adds up usage."""

from celery import shared_task
from django.utils import timezone

from usage.rollup import roll_up

__all__ = ["roll_up_usage"]


@shared_task(name="usage.tasks.roll_up_usage", ignore_result=True)  # type: ignore[untyped-decorator]
def roll_up_usage() -> None:
    """Add up the usage of the hours that are over. Called too often, or by several at once, it does nothing."""
    roll_up(timezone.now())
