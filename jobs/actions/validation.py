"""Validate a trained model by a job on one slot, with the code that trained the model."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from core.errors import Conflict, field_error
from core.names import MAX_NAME_LENGTH
from jobs.actions.submission import Submission, submit_again
from jobs.files.validation_runs import why_not_validated
from jobs.models import Job, Validation

__all__ = ["ValidationRequest", "validate"]


@dataclass(frozen=True)
class ValidationRequest:
    """A validation as a user asks for it; None takes the training's value."""

    #: Id or name; its newest version. None: the very version that was trained on.
    dataset: int | str | None = None
    split: str = Validation.Split.VALIDATION
    instance_group: int | str | None = None
    priority: int | None = None
    #: Of the run. None: made of the training's.
    name: str | None = None


def validate(trained: Job, request: ValidationRequest, owner: User) -> Validation:
    """Queue the run. Raises Conflict with the reason where the training cannot be validated."""
    if request.split not in Validation.Split.values:
        raise field_error("split", f"There is no such split: use {' or '.join(Validation.Split.values)}.")
    if why := why_not_validated(trained):
        raise Conflict(why)
    given = Submission(
        name=f"Validate {trained.name}"[:MAX_NAME_LENGTH] if request.name is None else request.name,
        model=trained.model.model.name,
        dataset=trained.dataset.dataset.name if request.dataset is None else request.dataset,
        instance_group=trained.instance_group.name if request.instance_group is None else request.instance_group,
        max_slots=1,
        priority=trained.priority if request.priority is None else request.priority,
        parameters=trained.parameters,
        arguments=trained.arguments,
        seed=trained.seed,
        effective_batch_size=trained.effective_batch_size,
        checkpoint_seconds=0,
        initial_weights=trained.pk,
    )
    job = submit_again(
        trained,
        given,
        owner,
        dataset=trained.dataset if request.dataset is None else None,
        then=lambda job: Validation.objects.create(job=job, trained=trained, split=request.split),
    )
    return job.validation
