"""Tables of jobs for pages of apps that must not import jobs."""

from typing import Any

from django import template

from jobs.files.validation_runs import ClassScore, class_scores, validation_of, why_not_validated
from jobs.models import Job
from jobs.pages.queries import jobs_using, models_proposing
from jobs.queries.checkpoints import visible_checkpoints
from jobs.queries.jobs import validation_problem, validations_of_job, validations_of_model
from jobs.queries.queue_position import short_start
from models_registry.models import RegisteredModel, RegisteredModelVersion

register = template.Library()


@register.inclusion_tag("jobs/_used_by.html", takes_context=True)
def used_by(context: dict[str, Any], **version: Any) -> dict[str, Any]:
    """Return the viewer's jobs with this dataset or model: `{% used_by dataset=dataset %}`."""
    [(kind, row)] = version.items()
    user = context["request"].user
    models = models_proposing(user, row.name) if kind == "dataset" else []
    return {"jobs": jobs_using(user, **version), "kind": kind, "models": models}


_MAX_SHOWN = 50
_SHADES = 5


@register.inclusion_tag("jobs/validation/_table.html", takes_context=True)
def validations_of_a_model(context: dict[str, Any], model: RegisteredModel) -> dict[str, Any]:
    """Return the validations of the viewer's trainings with a model."""
    return {"rows": list(validations_of_model(context["request"].user, model)[:_MAX_SHOWN])}


@register.inclusion_tag("jobs/validation/_table.html")
def validations_of_a_training(job: Job) -> dict[str, Any]:
    """Return the validations of a training, and why no further one is possible; no rows for a validation run."""
    rows = list(validations_of_job(job)[:_MAX_SHOWN])
    return {"rows": rows, "job": job, "why_not": why_not_validated(job)}


@register.inclusion_tag("jobs/validation/_run.html")
def measured_by(job: Job) -> dict[str, Any]:
    """Return the result of a validation run; nothing for a training."""
    validation = validation_of(job)
    return {"job": job, "validation": validation, "problem": validation_problem(validation) if validation else None}


@register.inclusion_tag("jobs/validation/_confusion.html")
def confusion(matrix: list[list[int]]) -> dict[str, Any]:
    scores = class_scores(matrix)
    rows: list[tuple[ClassScore, list[tuple[int, int]]]] = [
        # Shade 0 for an empty cell, 1 to _SHADES by the cell's fraction of its row.
        (score, [(count, -(-count * _SHADES // score.samples) if score.samples else 0) for count in row])
        for score, row in zip(scores, matrix, strict=True)
    ]
    return {"scores": scores, "rows": rows}


@register.inclusion_tag("insights/checkpoints/_weights.html", takes_context=True)
def weights_of(context: dict[str, Any], version: RegisteredModelVersion) -> dict[str, Any]:
    """Return the checkpoint that a model version was made from, if the viewer may see its training."""
    user = context["request"].user
    point = visible_checkpoints(user).filter(versions__version=version).first()
    return {"point": point, "version": version, "looks_only": context.get("looks_only")}


register.filter("short_start", short_start)


@register.filter
def unlocalized(value: float) -> str:
    """Return the number with a decimal point in every language, for markup."""
    return f"{value:.3f}"
