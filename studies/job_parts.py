"""Part of a job's page that this app renders: the study of which the job is a trial."""

from typing import Any

from core.roles import is_cluster_admin
from jobs.pages.job.parts import Part, ViewedJob, register_part
from studies.models import Trial

__all__ = ["register_job_parts"]


def register_job_parts() -> None:
    register_part("trial", Part("studies/_trial_of.html", context=_trial, on_page=_trial))


def _trial(view: ViewedJob) -> dict[str, Any]:
    """Return the job's trial if the user may see its study, or None."""
    trials = Trial.objects.filter(job=view.job).select_related("study")
    if not is_cluster_admin(view.user):
        trials = trials.filter(study__owner=view.user)
    return {"trial": trials.first()}
