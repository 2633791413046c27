"""The secret of a training: it opens the training's own run in MLflow, while that attempt lasts.

It is worked out from the site's key and stored nowhere.
"""

import hmac
import re

from django.conf import settings
from django.utils.crypto import salted_hmac

from jobs.models import Job

__all__ = ["experiment_name", "job_of_token", "token_of"]

_TOKEN = re.compile(r"tide_run_([1-9][0-9]{0,17})_([1-9][0-9]{0,8})_([0-9a-f]{64})")


def token_of(job: int, attempt: int) -> str:
    digest = salted_hmac("tracking.job", f"{job}.{attempt}", secret=settings.SECRET_KEY, algorithm="sha256")
    return f"tide_run_{job}_{attempt}_{digest.hexdigest()}"


def job_of_token(text: str) -> Job | None:
    """The job whose present attempt this token is of; None where it is of none, or the job is over."""
    found = _TOKEN.fullmatch(text)
    if found is None or not hmac.compare_digest(text, token_of(int(found[1]), int(found[2]))):
        return None
    jobs = Job.objects.select_related("owner", "run", "model__model", "dataset__dataset")
    return jobs.filter(
        pk=int(found[1]), run__attempt=int(found[2]), finished_at__isnull=True, owner__is_active=True
    ).first()


def experiment_name(job: Job) -> str:
    """Needs the job's owner and model."""
    return f"/Users/{job.owner.get_username()}/{job.model.model.name}"
