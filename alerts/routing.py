"""Decides which channels are told of what happened. Pure: happenings and rules in, alerts out."""

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
    #: None: all groups, and the owner's trainings only.
    group: int | None
    minutes: int | None
    created_at: datetime


@dataclass(frozen=True)
class Happening:
    kind: str
    #: What tells it from all others.
    key: str
    #: When it happened, or began.
    at: datetime
    group: int
    #: The training and its owner; None: it is about the group.
    job: int | None = None
    owner: int | None = None
    #: Of what lasts: for how long it has; None: it is over as it happens.
    lasted_seconds: float | None = None
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NewAlert:
    channel: int
    key: str
    about: Happening


def kind_of_event(old: str, new: str, reason: str) -> Kind | None:
    """What an event of a training is an alert of; None: of nothing."""
    if old != new and new == JobState.FAILED:
        return Kind.FAILED
    if old != new and new == JobState.SUCCEEDED:
        return Kind.DONE
    if reason in _TAKEN and new in (JobState.STARTING, JobState.RUNNING, JobState.PREEMPTING):
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
    if happening.job is None:
        return rule.group is not None
    return happening.owner == rule.owner or (rule.group is not None and rule.sees_all)


def _is_time(rule: Rule, happening: Happening) -> bool:
    """What lasts long enough; and what happened since there is the rule."""
    if happening.lasted_seconds is None:
        return happening.at >= rule.created_at
    return happening.lasted_seconds >= 60 * (rule.minutes or 0)
