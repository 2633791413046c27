"""Filters for tables of trials."""

from django import template

from core.templatetags.tidepool import figure
from studies.models import Trial

__all__ = ["register"]

register = template.Library()


@register.filter
def trial_value(value: object) -> str:
    """Return a parameter's value for a table."""
    return figure(value) if isinstance(value, float) else str(value)


@register.filter
def remark(trial: Trial) -> str:
    """Return why the trial failed or was pruned, or where its values come from."""
    if trial.why:
        return trial.why
    if trial.repeats is not None:
        return (
            f"Values of trial {trial.repeats.number}, with another seed."
            if trial.origin == "seed"
            else (f"Values of trial {trial.repeats.number}, which was lost or stopped.")
        )
    return "Chosen by a user." if trial.origin == "user" else ""
