"""The charts that a user chooses for the trainings of a model, their order, and the grouping of their lines."""

from collections.abc import Iterable, Sequence

from django.contrib.auth.models import User
from django.db import transaction

from core.errors import field_error
from core.text import is_storable
from jobs.models import ChosenCharts, Job

__all__ = ["choose_charts"]

#: With the jobs of a comparison, titles of both kinds are fewer than `DATA_UPLOAD_MAX_NUMBER_FIELDS`.
_MOST = 90
_LONGEST = 200


def choose_charts(user: User, jobs: Sequence[Job], *, order: Iterable[str], hidden: Iterable[str], group: str) -> None:
    """Store the titles and the grouping for each model of the jobs. Raises UserError.

    Without titles: all charts in the usual order. Without a grouping: a line for each training.
    """
    if len(group) > _LONGEST or not is_storable(group):
        raise field_error(
            "group", f"A grouping has at most {_LONGEST} characters that can be stored: choose another one."
        )
    kept = {"order": _titles("order", order), "hidden": _titles("hidden", hidden), "group": group}
    models = {job.model.model_id for job in jobs}
    with transaction.atomic():
        if not any(kept.values()):
            ChosenCharts.objects.filter(owner=user, model__in=models).delete()
            return
        for model in sorted(models):
            ChosenCharts.objects.update_or_create(owner=user, model_id=model, defaults=kept)


def _titles(name: str, given: Iterable[str]) -> list[str]:
    titles = list(dict.fromkeys(given))
    if not all(title and len(title) <= _LONGEST and is_storable(title) for title in titles):
        raise field_error(name, f"A chart's title has 1 to {_LONGEST} characters that can be stored: give another one.")
    if len(titles) > _MOST:
        raise field_error(
            name, f"At most {_MOST} charts are kept, not {len(titles)}: start again from the usual order."
        )
    return titles
