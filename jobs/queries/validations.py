"""What pages and the API read about validations."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from core.time import iso
from jobs.files.validation_runs import class_scores
from jobs.models import Job, Validation
from jobs.queries.jobs import visible_jobs
from jobs.states import TERMINAL, JobState
from models_registry.models import RegisteredModel

__all__ = ["problem_of", "validation_as_json", "validations_of_job", "validations_of_model"]


def validations_of_model(user: AbstractBaseUser | AnonymousUser, model: RegisteredModel) -> QuerySet[Validation]:
    """Of trainings that the user may see, with any version of the model, the newest first."""
    return _shown().filter(trained__in=visible_jobs(user), trained__model__model=model)


def validations_of_job(trained: Job) -> QuerySet[Validation]:
    """The newest first. Whether the training may be seen is the caller's business."""
    return _shown().filter(trained=trained)


def validation_as_json(validation: Validation) -> dict[str, Any]:
    job, result = validation.job, validation.result
    confusion = result.get("confusion")
    return {
        "job": job.pk,
        "trained": validation.trained_id,
        "model": job.model.model.name,
        "version": job.model.number,
        "dataset": job.dataset.dataset.name,
        "dataset_version": job.dataset.number,
        "state": str(job.state),
        "asked_for": validation.split,
        "split": result.get("split"),
        "samples": result.get("samples"),
        "loss": result.get("loss"),
        "accuracy": result.get("accuracy"),
        "confusion": confusion,
        "classes": [
            {"label": score.label, "samples": score.samples, "recall": score.recall, "precision": score.precision}
            for score in class_scores(confusion or [])
        ],
        "problem": problem_of(validation),
        "submitted_at": iso(job.submitted_at),
        "finished_at": iso(job.finished_at),
    }


def problem_of(validation: Validation) -> str | None:
    """Why there is no result although the run is over."""
    job = validation.job
    if validation.result or job.state not in TERMINAL:
        return None
    if job.state == JobState.SUCCEEDED:
        return "The run ended well and left no result that can be read: its script ended before session.epochs."
    return str(job.run.error.get("message") or job.reason_text)


def _shown() -> QuerySet[Validation]:
    return Validation.objects.select_related(
        "job__run", "job__model__model", "job__dataset__dataset", "job__owner", "trained__model"
    ).order_by("-job_id")
