"""Queries about studies for pages and the API. None of them writes."""

from collections.abc import Iterable

from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, When

from core.errors import existing
from core.roles import Asking, is_cluster_admin
from studies.models import Study, Trial

__all__ = ["find_study", "studies", "trials_by_value", "trials_of", "with_best"]

_OVER = (Trial.State.COMPLETE, Trial.State.PRUNED, Trial.State.FAILED)


def studies(user: Asking) -> QuerySet[Study]:
    """Return the studies that the user may see, each with the number of its trials by state."""
    rows = Study.objects.select_related("owner", "model__model", "dataset__dataset", "instance_group", "plugin__owner")
    counts = {f"{state.lower()}_count": Count("trials", filter=Q(trials__state=state)) for state in Trial.State.values}
    rows = rows.annotate(trial_count=Count("trials"), **counts)
    complete = Trial.objects.filter(study=OuterRef("pk"), state=Trial.State.COMPLETE)
    lowest, highest = complete.order_by("value", "number"), complete.order_by("-value", "number")
    is_low = When(goal=Study.Goal.MINIMIZE, then=Subquery(lowest.values("pk")[:1]))
    rows = rows.annotate(best_id=Case(is_low, default=Subquery(highest.values("pk")[:1])))
    if is_cluster_admin(user):
        return rows
    return rows.filter(owner_id=user.pk) if user.pk else rows.none()


def find_study(user: Asking, study_id: int) -> Study:
    """Return the study. Raises NotFound if it does not exist, or the user may not see it."""
    study = existing(studies(user).filter(pk=study_id).first(), f"study {study_id}")
    return with_best([study])[0]


def with_best(rows: Iterable[Study]) -> list[Study]:
    """Return the studies of `studies` with `best`: the complete trial with the best value, of equals the first."""
    found = list(rows)
    best = Trial.objects.in_bulk([row.best_id for row in found if row.best_id is not None])  # type: ignore[attr-defined]
    for row in found:
        row.best = best.get(row.best_id)  # type: ignore[attr-defined]
    return found


def trials_of(study: Study) -> QuerySet[Trial]:
    """Return the study's trials with their trainings, in order of number."""
    return study.trials.select_related("job__run", "repeats").order_by("number")


def trials_by_value(study: Study) -> QuerySet[Trial]:
    """Return the study's trials with their trainings, the best first, those without a value last."""
    value = F("value")
    is_low = study.goal == Study.Goal.MINIMIZE
    order = value.asc(nulls_last=True) if is_low else value.desc(nulls_last=True)
    return trials_of(study).order_by(order, "number")
