"""Rows of studies and trials as the samplers see them."""

import math
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from studies.models import Study, Trial
from studies.space import parse_space
from studies.trials import Goal, PastTrial, Search

__all__ = [
    "best_trial",
    "counted_trials",
    "goal_of",
    "past_trials",
    "read_number",
    "search_of",
    "stored_number",
]

_STATES: Mapping[str, Any] = {
    Trial.State.WAITING: "running",
    Trial.State.RUNNING: "running",
    Trial.State.COMPLETE: "complete",
    Trial.State.PRUNED: "pruned",
    Trial.State.FAILED: "failed",
}


def goal_of(study: Study) -> Goal:
    return "minimize" if study.goal == Study.Goal.MINIMIZE else "maximize"


def search_of(study: Study) -> Search:
    return Search(
        space=parse_space(study.space),
        sampler=study.sampler,
        goal=goal_of(study),
        seed=study.seed,
        options=study.sampler_options,
    )


def past_trials(study: Study) -> list[PastTrial]:
    """Return all trials, in order of number; those that have no value yet count as running."""
    rows = study.trials.order_by("number").values_list("number", "values", "state", "value", "reported", "attributes")
    return [
        PastTrial(
            number=number,
            values=values,
            state=_STATES[state],
            value=value,
            reported={progress: read_number(seen) for progress, seen in reported},
            attributes=attributes,
        )
        for number, values, state, value, reported, attributes in rows
    ]


def best_trial(study: Study) -> Trial | None:
    """Return the complete trial with the best value, of equals the first."""
    order = "value" if study.goal == Study.Goal.MINIMIZE else "-value"
    return study.trials.filter(state=Trial.State.COMPLETE).select_related("job").order_by(order, "number").first()


def counted_trials(study: Study) -> QuerySet[Trial]:
    """Return the trials that count towards the study's limit: not those that repeat a lost one."""
    return study.trials.exclude(origin=Trial.Origin.REPEAT)


def stored_number(value: float) -> float | None:
    """Return the value as JSON stores it: null for what is not a number."""
    return value if math.isfinite(value) else None


def read_number(stored: float | None) -> float:
    return math.nan if stored is None else stored
