"""The Django project: joins the apps, owns nothing of the domain."""

# Sending a task by name (`celery.current_app`) needs our Celery app in every process that loads Django.
from webapp.celery import app as celery_app

__all__ = ["celery_app"]
