"""Sweeps by hand: a training with several values of some parameters, as a study of all combinations."""

from math import prod

from django.contrib.auth.models import User
from django.urls import reverse

from core.errors import field_error
from jobs.options import requested_values
from jobs.pages.train.sweeps import Sweep
from studies.actions import StudyRequest, create_study
from studies.models import MAX_TRIALS

__all__ = ["start_sweep"]


def start_sweep(sweep: Sweep, user: User) -> str:
    """Create a study with one trial for each combination of the values; return its address. Raises UserError."""
    first = sweep.first
    count = prod(len(values) for values in sweep.values.values())
    if count > MAX_TRIALS:
        raise field_error("parameters", f"These values make {count:,} trainings: list fewer, at most {MAX_TRIALS:,}.")
    study = StudyRequest(
        name=first.name,
        model=first.model,
        dataset=first.dataset,
        instance_group=first.instance_group,
        space={name: list(values) for name, values in sweep.values.items()},
        metric=sweep.metric,
        goal=sweep.goal,
        sampler="grid",
        trials=count,
        parameters={name: value for name, value in first.parameters.items() if name not in sweep.values},
        arguments=first.arguments,
        tags=first.tags,
        options=requested_values(first),
    )
    return reverse("studies:detail", args=[create_study(study, user).pk])
