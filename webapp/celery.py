"""The control plane's Celery app: sends `executor.sync` to hosts, and knows the tasks of queue `control`.

`manage.py take_reports` takes these. A Celery worker, as in former versions, does the same more slowly.
"""

import os
from typing import Any

from celery import Celery, bootsteps

__all__ = ["app"]

_ALIVE_EVERY_SECONDS = 2.0

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")


class AliveStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Signals that the control worker processes reports, by a timer that runs between them."""

    requires = {"celery.worker.components:Timer"}

    def start(self, parent: Any) -> None:
        from core.process import still_alive  # this import needs Django's settings

        parent.timer.call_repeatedly(_ALIVE_EVERY_SECONDS, still_alive)


class KeptConnectionStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Keeps the database connection open: opening one takes half as long as storing a report, and several arrive each
    second.

    Not done by a setting, with which each thread of the web server would also keep a connection.
    """

    def start(self, parent: Any) -> None:
        from django.db import connections

        connections["default"].settings_dict.update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)


app = Celery("tidepool")
app.steps["worker"].add(AliveStep)
app.steps["worker"].add(KeptConnectionStep)
# Read when first needed, so that importing this module neither loads Django nor opens a connection.
app.config_from_object("django.conf:settings", namespace="CELERY")
# `current_app` is thread-local; without a default, a thread of the web server would get an app without configuration.
app.set_default()
