"""The control plane's Celery app: sends `executor.sync` to hosts, receives their reports on queue `control`."""

from __future__ import annotations

import os

from celery import Celery

__all__ = ["app"]

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

app = Celery("tidepool")
# Read when first needed, so that importing this module neither loads Django nor opens a connection.
app.config_from_object("django.conf:settings", namespace="CELERY")
# `current_app` is thread-local; without a default, a thread of the web server would get an app without configuration.
app.set_default()
