"""Part of a job's page that this app renders: the study of which the job is a trial."""

from typing import Any

from core.roles import is_cluster_admin
from jobs.pages.job.parts import Part, ViewedJob, register_part
from studies.models import PluginCall, Trial

__all__ = ["register_job_parts"]


def register_job_parts() -> None:
    register_part("trial", Part("studies/_trial_of.html", context=_trial, on_page=_trial))


def _trial(view: ViewedJob) -> dict[str, Any]:
    """Return the job's trial, or its call of a plug-in, if the user may see its study; otherwise None."""
    own = {} if is_cluster_admin(view.user) else {"study__owner": view.user}
    trial = Trial.objects.filter(job=view.job, **own).select_related("study").first()
    call = None
    if trial is None:
        call = PluginCall.objects.filter(job=view.job, **own).select_related("study").first()
    return {"trial": trial, "call": call}
