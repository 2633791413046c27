"""Reads what happens to studies, for the rules that there are. Decides nothing."""

from datetime import datetime
from itertools import takewhile

from django.db.models import Max

from alerts.alert_kinds import Kind
from alerts.routing import Happening
from studies.models import Study, StudyEvent
from studies.rows import best_trial
from studies.words import best_sentence

__all__ = ["events_since", "newest_event"]

_MAX_EVENTS = 1000


def newest_event() -> int:
    return StudyEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0


def events_since(mark: int, settled: datetime) -> tuple[list[Happening], int]:
    """Return the happenings in the events behind the mark, and the mark for the next call.

    It stays before events that are younger than `settled`: a transaction may still write one with a lower number.
    """
    rows = list(StudyEvent.objects.filter(pk__gt=mark).select_related("study").order_by("pk")[:_MAX_EVENTS])
    found = [_happening(event, kind) for event in rows if (kind := _kind_of(event))]
    old_ones = takewhile(lambda event: event.at < settled, rows)
    return found, max((event.pk for event in old_ones), default=mark)


def _kind_of(event: StudyEvent) -> Kind | None:
    """Return the kind of alert that the event is; None: it is no alert."""
    if event.new == Study.State.FINISHED:
        return Kind.STUDY_DONE
    return Kind.STUDY_PAUSED if event.new == Study.State.PAUSED and not event.actor else None


def _happening(event: StudyEvent, kind: Kind) -> Happening:
    study, sentence = event.study, event.reason
    if kind == Kind.STUDY_PAUSED and (best := best_trial(study)):
        # The sentence of a study that is done names its best trial.
        sentence = f"{sentence} {best_sentence(study, best)}"
    return Happening(
        kind, f"study event {event.pk}", event.at, study.instance_group_id,
        study=study.pk, owner=study.owner_id, params={"name": study.name, "sentence": sentence},
    )  # fmt: skip
