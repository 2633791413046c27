"""Sentences and numbers about studies, for pages, the API and the command line."""

from core.templatetags.tidepool import figure
from studies.models import Study, Trial

__all__ = ["best_sentence", "values_text"]


def values_text(trial: Trial) -> str:
    """Return the trial's values, such as "lr 0.01, width 64"."""
    return ", ".join(
        f"{name} {figure(value) if isinstance(value, float) else value}" for name, value in trial.values.items()
    )


def best_sentence(study: Study, best: Trial | None) -> str:
    """Return the sentence that names the best trial and why it is the best."""
    if best is None or best.value is None:
        return "No trial has a value."
    extreme = "lowest" if study.goal == Study.Goal.MINIMIZE else "highest"
    kept = "best" if study.value_of == Study.ValueOf.BEST else "last"
    return (
        f"Trial {best.number} is the best: its {kept} {study.metric}, {figure(best.value)}, is the {extreme} "
        f"({values_text(best)})."
    )
