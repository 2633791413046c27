"""Changes of a study's rows that the controller and users' actions share, each published to the study's page."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from core import live
from studies.models import Study, StudyEvent, Trial
from studies.topics import study_topic

__all__ = ["add_trial", "changed", "next_number", "set_state"]


def add_trial(study: Study, values: Mapping[str, Any], **columns: Any) -> Trial:
    """Queue a trial with these values: the controller submits it before it asks the sampler. Locks the study."""
    Study.objects.select_for_update().get(pk=study.pk)
    number = next_number(study)
    return Trial.objects.create(study=study, number=number, values=values, created_at=timezone.now(), **columns)


def next_number(study: Study) -> int:
    """Return the number of the next trial. The caller has locked the study."""
    newest = study.trials.aggregate(newest=Max("number"))["newest"]
    return 0 if newest is None else newest + 1


@transaction.atomic
def changed(study: int) -> None:
    """Count and publish a change that the study's page shows."""
    Study.objects.filter(pk=study).update(revision=F("revision") + 1)
    revision = Study.objects.values_list("revision", flat=True).get(pk=study)
    live.publish(study_topic(study), "state", {"revision": revision})


@transaction.atomic
def set_state(
    study: Study, new: str, reason: str, *, only: Sequence[str], actor: str = "", plugin_failed: bool = False
) -> bool:
    """Change the study's state if it is one of `only`; return whether it was.

    actor: name of the user who changes it; "": the study itself.
    """
    over, now = new in (Study.State.FINISHED, Study.State.STOPPED), timezone.now()
    rows = Study.objects.filter(pk=study.pk, state__in=only)
    finished_at = now if over else None
    if not rows.update(state=new, reason=reason[:500], finished_at=finished_at, plugin_failed=plugin_failed):
        return False
    study.state, study.reason, study.finished_at = new, reason[:500], finished_at
    StudyEvent.objects.create(study=study, new=new, reason=study.reason, actor=actor, at=now)
    changed(study.pk)
    return True
