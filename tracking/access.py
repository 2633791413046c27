"""The one secret that a training is given: it opens the training's own run in MLflow, while that attempt lasts.

It is worked out from the site's key and stored nowhere but in `.access/<attempt>.json` in the job's folder, for the
user alone that trainings run as. No message, launch file, list or archive has it: it lies outside of what these read.
"""

import hmac
import json
import os
import re

from django.conf import settings
from django.contrib.auth.models import User
from django.utils.crypto import salted_hmac

from jobs.files.job_folder import job_folder
from jobs.models import Job
from models_registry.models import RegisteredModelVersion

__all__ = ["ACCESS_DIR", "experiment_name", "experiment_name_of", "job_of_token", "token_of", "write_access"]

ACCESS_DIR = ".access"
_TOKEN = re.compile(r"tide_run_([1-9][0-9]{0,17})_([1-9][0-9]{0,8})_([0-9a-f]{64})")


def token_of(job: int, attempt: int) -> str:
    digest = salted_hmac("tracking.job", f"{job}.{attempt}", secret=settings.SECRET_KEY, algorithm="sha256")
    return f"tide_run_{job}_{attempt}_{digest.hexdigest()}"


def job_of_token(text: str) -> Job | None:
    """Return the job whose present attempt this token is of; None where it is of none, or the job is over."""
    found = _TOKEN.fullmatch(text)
    if found is None or not hmac.compare_digest(text, token_of(int(found[1]), int(found[2]))):
        return None
    jobs = Job.objects.select_related("owner", "run", "model__model", "dataset__dataset")
    return jobs.filter(
        pk=int(found[1]), run__attempt=int(found[2]), finished_at__isnull=True, owner__is_active=True
    ).first()


def experiment_name(job: Job) -> str:
    """Needs the job's owner and model."""
    return experiment_name_of(job.owner, job.model)


def experiment_name_of(owner: User, model: RegisteredModelVersion) -> str:
    """Return the name of the experiment with the owner's runs of the model."""
    return f"/Users/{owner.get_username()}/{model.model.name}"


def write_access(job: Job, attempt: int) -> None:
    """Leave the token for the ranks of an attempt that is about to start, where they can reach MLflow."""
    if not settings.TIDEPOOL_MLFLOW_URL:
        return
    folder = job_folder(job).path / ACCESS_DIR
    folder.mkdir(mode=0o700, exist_ok=True)
    for former in folder.iterdir():
        former.unlink()
    values = {
        "MLFLOW_TRACKING_URI": settings.TIDEPOOL_MLFLOW_URL,
        "MLFLOW_TRACKING_TOKEN": token_of(job.pk, attempt),
        "MLFLOW_EXPERIMENT_NAME": experiment_name(job),
    }
    descriptor = os.open(folder / f"{attempt}.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(values, stream)
