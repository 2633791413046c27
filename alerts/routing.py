"""Decides which channels receive which events. Pure: events and rules in, alerts out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from alerts.alert_kinds import Kind
from jobs.states import JobState, Reason
from scheduling.plan import PlanReason

__all__ = ["Happening", "NewAlert", "Rule", "alerts_of", "kind_of_event"]

#: The scheduler gives GPUs of a training to others.
_TAKEN = frozenset(
    {
        PlanReason.SHRUNK_FOR_FAIR_SHARE,
        PlanReason.SHRUNK_FOR_GOODPUT,
        PlanReason.PREEMPTED_BY_PRIORITY,
        PlanReason.GAVE_WAY,
        PlanReason.RECLAIMED_BY_OWNER,
        Reason.HOST_LEAVES,
    }
)
_LOST = frozenset({Reason.HOST_LOST, Reason.RANK_LOST})


@dataclass(frozen=True)
class Rule:
    channel: int
    owner: int
    #: The owner may see everybody's trainings.
    sees_all: bool
    kind: str
    #: Group that the rule watches; None: the owner's trainings in all groups.
    group: int | None
    minutes: int | None
    created_at: datetime


@dataclass(frozen=True)
class Happening:
    kind: str
    #: Unique key of the event.
    key: str
    #: When it happened, or began.
    at: datetime
    group: int
    #: The training, and the owner of the training or study; None: it is about the group.
    job: int | None = None
    owner: int | None = None
    #: Seconds that the condition has lasted so far; None for what happens at a moment.
    lasted_seconds: float | None = None
    params: dict[str, Any] = field(default_factory=dict)
    study: int | None = None


@dataclass(frozen=True)
class NewAlert:
    channel: int
    key: str
    about: Happening


def kind_of_event(old: str, new: str, reason: str) -> Kind | None:
    """Return the kind of alert that a change of a training's state is; None: it is no alert."""
    if old != new and new == JobState.FAILED:
        return Kind.FAILED
    if old != new and new == JobState.SUCCEEDED:
        return Kind.DONE
    if reason in _TAKEN and new in (JobState.STARTING, JobState.RUNNING, JobState.PREEMPTING):
        return Kind.TAKEN
    if reason == Reason.GPUS_IDLE and old != new and new == JobState.PREEMPTING:
        return Kind.TAKEN
    if reason in _LOST and old != new and new == JobState.PENDING:
        return Kind.TAKEN
    return None


def alerts_of(happenings: Iterable[Happening], rules: Sequence[Rule]) -> list[NewAlert]:
    """One for each channel and happening, in the order of the happenings."""
    found: dict[tuple[int, str], NewAlert] = {}
    for happening in happenings:
        for rule in rules:
            if rule.kind == happening.kind and _concerns(rule, happening) and _is_time(rule, happening):
                key = happening.key if rule.minutes is None else f"{happening.key} {rule.minutes} min"
                found.setdefault((rule.channel, key), NewAlert(rule.channel, key, happening))
    return list(found.values())


def _concerns(rule: Rule, happening: Happening) -> bool:
    if rule.group is not None and rule.group != happening.group:
        return False
    if happening.owner is None:
        return rule.group is not None
    return happening.owner == rule.owner or (rule.group is not None and rule.sees_all)


def _is_time(rule: Rule, happening: Happening) -> bool:
    """Return whether a condition has lasted long enough for the rule, or an event is younger than the rule."""
    if happening.lasted_seconds is None:
        return happening.at >= rule.created_at
    return happening.lasted_seconds >= 60 * (rule.minutes or 0)
