"""The background worker: checks datasets, plays replays, sends alerts, runs studies, measures, mirrors to MLflow."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from alerts.background import Alerts
from core.background import BackgroundTask, BackgroundWorker
from core.process import stop_at_signals
from datasets.background import DatasetChecks
from jobs.background import DiskMeasurements
from replay.background import ReplayWorker
from studies.background import StudyController
from studies.copying import OptunaCopies

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Check datasets, play replays, send alerts, run studies, mirror to MLflow; any number may run."

    def handle(self, *args: Any, **options: Any) -> None:
        BackgroundWorker(_tasks(), stop_at_signals()).run()


def _tasks() -> list[BackgroundTask]:
    checks, replays, alerts, studies = DatasetChecks(), ReplayWorker(), Alerts(), StudyController()
    tasks = [
        BackgroundTask("checks", checks.run, checks.has_work),
        BackgroundTask("replays", replays.run, replays.has_work),
        BackgroundTask("alerts", alerts.run, alerts.has_work),
        BackgroundTask("studies", studies.run, studies.has_work),
    ]
    if settings.TIDEPOOL_USER_DISK or settings.TIDEPOOL_TRAINING_DISK:
        measurements = DiskMeasurements()
        tasks.append(BackgroundTask("disk", measurements.run, measurements.has_work))
    if settings.TIDEPOOL_OPTUNA_URL:
        copies = OptunaCopies()
        tasks.append(BackgroundTask("copies", copies.run, copies.has_work))
    if settings.TIDEPOOL_MLFLOW_SOCKET:
        # A site without MLflow saves the memory of its client.
        from tracking.background import run_mirror

        tasks.append(BackgroundTask("mirror", run_mirror))
    return tasks
