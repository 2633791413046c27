"""The Django project: connects the apps, and contains no domain logic."""

# Sending a task by name (`celery.current_app`) needs our Celery app in every process that loads Django.
from webapp.celery import app as celery_app

__all__ = ["celery_app"]
