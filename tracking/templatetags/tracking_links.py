"""Links from our pages to MLflow's, where the site has it."""

from django import template
from django.conf import settings

from jobs.models import Job
from tracking.models import TrackedRun
from tracking.runs import run_path

register = template.Library()


@register.simple_tag
def mlflow_run(job: Job) -> str:
    """Return MLflow's address of the job's run; "": the site has no MLflow, or there is no run yet."""
    run = TrackedRun.objects.filter(job=job).first() if settings.TIDEPOOL_MLFLOW_SOCKET else None
    return run_path(run) if run is not None else ""
