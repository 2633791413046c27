"""MLflow on our pages, where the site has it: links to runs and versions, and the lineage of a model."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

from django import template
from django.conf import settings
from django.utils import timezone

from core.roles import may_change
from jobs.files.validation_runs import validation_of
from jobs.models import Job
from models_registry.models import RegisteredModel
from studies.models import Study
from tracking.availability import mlflow_away_since
from tracking.lineage import lineage_of
from tracking.models import ModelVersion, TrackedRun, TrackedStudy
from tracking.registry_actions import default_name, why_not_registered
from tracking.runs import run_path
from tracking.sharing import sharing_of
from tracking.study_runs import study_run_path

register = template.Library()


@register.simple_tag
def mlflow_run(job: Job) -> str:
    """Return the address of the job's run in MLflow; "": the site has no MLflow, or there is no run yet."""
    run = TrackedRun.objects.filter(job=job).first() if settings.TIDEPOOL_MLFLOW_SOCKET else None
    return run_path(run) if run is not None else ""


@register.simple_tag
def mlflow_study_run(study: Study) -> str:
    """Return the address of the study's run in MLflow; "": the site has no MLflow, or there is no run yet."""
    run = TrackedStudy.objects.filter(study=study).first() if settings.TIDEPOOL_MLFLOW_SOCKET else None
    return study_run_path(run) if run is not None else ""


@register.simple_tag
def mlflow_away() -> datetime | None:
    """Since when MLflow has not answered; None: it does, or the site has none."""
    return mlflow_away_since(timezone.now())


@register.inclusion_tag("tracking/_registration.html", takes_context=True)
def mlflow_registration(context: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the versions in MLflow that a training is the source of, and the button that makes one."""
    has_mlflow = bool(settings.TIDEPOOL_MLFLOW_SOCKET) and validation_of(job) is None
    return {
        "request": context["request"],
        "csrf_token": context.get("csrf_token"),
        "job": job,
        "has_mlflow": has_mlflow,
        "versions": list(ModelVersion.objects.filter(job=job).order_by("name", "number")) if has_mlflow else [],
        "why_not": why_not_registered(job) if has_mlflow else "",
        "name": default_name(job),
        "may_change": may_change(context["request"].user),
    }


@register.inclusion_tag("tracking/_lineage.html", takes_context=True)
def lineage(context: dict[str, Any], model: RegisteredModel) -> dict[str, Any]:
    """From datasets by the viewer's trainings with a model to its versions in MLflow."""
    user = context["request"].user
    shown = lineage_of(user, model)
    steps = [step for source in shown.sources for step in source.steps]
    return {
        "csrf_token": context.get("csrf_token"),
        "model": model,
        "lineage": shown,
        "versions": [version for step in steps for version in step.versions if version.number],
        "has_mlflow": bool(settings.TIDEPOOL_MLFLOW_SOCKET),
        "sharing": sharing_of(user, model) if settings.TIDEPOOL_MLFLOW_SOCKET and steps else None,
        "may_change": may_change(user),
    }


@register.filter
def mlflow_version_path(version: ModelVersion) -> str:
    """Return the address of the version in MLflow."""
    return f"/mlflow/#/models/{quote(version.name, safe='')}/versions/{version.number}"
