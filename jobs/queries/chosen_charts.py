"""The charts that a user has chosen for the trainings of a model, their order, and the grouping of their lines."""

from collections.abc import Sequence
from typing import Any

from core.roles import Asking
from jobs.models import ChosenCharts, Job

__all__ = ["chosen_charts"]


def chosen_charts(user: Asking, jobs: Sequence[Job]) -> dict[str, Any]:
    """Return the newest choice for any model of these jobs, as `static/js/chart_order.js` reads and sends it."""
    models = {job.model.model_id for job in jobs}
    choices = ChosenCharts.objects.filter(owner_id=user.pk, model__in=models).order_by("-changed_at", "-pk")
    chosen = choices.first() or ChosenCharts()
    kept = {"order": chosen.order, "hidden": chosen.hidden, "group": chosen.group}
    return {"jobs": [job.pk for job in jobs], **kept}
