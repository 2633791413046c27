"""Queries that several pages share."""

from typing import Any

from django.db.models import QuerySet

from core.pages import or_404
from core.roles import Asking
from core.visibility import readable
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from models_registry.models import RegisteredModel

__all__ = ["job_or_404", "jobs_using", "models_proposing"]

_MAX_USING = 20


def job_or_404(user: Asking, job_id: int) -> Job:
    return or_404(visible_jobs(user).filter(pk=job_id).first())


def jobs_using(user: Asking, **version: Any) -> list[Job]:
    """Return the viewer's newest trainings with any version of a dataset or model: `dataset=` or `model=`."""
    [(kind, row)] = version.items()
    # Keys first, in the order of an index: the wide rows are read only for the shown jobs.
    using = visible_jobs(user).select_related(None).filter(**{f"{kind}__in": row.versions.all()}, validation=None)
    keys = list(using.order_by("-submitted_at", "-id").values_list("pk", flat=True)[:_MAX_USING])
    return list(visible_jobs(user).filter(pk__in=keys).order_by("-submitted_at", "-id"))


def models_proposing(user: Asking, dataset: str) -> QuerySet[RegisteredModel]:
    """Return the models that the user may read and whose default dataset is this one."""
    models = readable(RegisteredModel.objects.all(), user)
    return models.filter(versions__default_dataset=dataset).distinct().order_by("name")[:20]
