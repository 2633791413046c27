"""Requesting and removing replays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.utils import timezone

from core.errors import Conflict, UserError
from core.roles import require_cluster_admin
from core.text import by_reference
from jobs.actions.groups import check_change
from jobs.actions.submission_checks import Problems
from jobs.models import InstanceGroup
from replay.models import Replay
from replay.queries import find_replay, jobs_between

__all__ = ["MAX_DAYS", "RULES", "ReplaySpec", "ask_for_replay", "remove_replay"]

#: Rules of a group that a replay can change.
RULES: Final = (
    *("policy", "aim", "gpu_weights", "preemption", "quota", "weight", "borrows", "lends", "minimum_run_seconds"),
)
MAX_DAYS: Final = 35
_MAX_JOBS, _MAX_GPUS, _MAX_SECONDS = 50_000, 10_000, 3600
_MAX_WAITING = 5


@dataclass(frozen=True)
class ReplaySpec:
    start: datetime
    end: datetime
    #: Id or name of an instance group -> rule, from `RULES` -> its value in the replay.
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Maximum size of the pool in GPUs; None: as recorded.
    gpus: int | None = None
    #: Pause at each change of a training's size, in seconds; None: as recorded.
    restart_seconds: float | None = None


def ask_for_replay(spec: ReplaySpec, actor: User) -> Replay:
    """Queue a replay. Raises UserError with a message for each invalid field."""
    require_cluster_admin(actor)
    now, problems = timezone.now(), Problems()
    _check_window(problems, spec, now)
    if spec.gpus is not None and not 1 <= spec.gpus <= _MAX_GPUS:
        problems.add("gpus", f"Give a number of GPUs from 1 to {_MAX_GPUS:,}.")
    if spec.restart_seconds is not None and not 0 <= spec.restart_seconds <= _MAX_SECONDS:
        problems.add("restart_seconds", f"Give a time from 0 to {_MAX_SECONDS:,} s.")
    groups = _checked_groups(problems, spec.groups, actor)
    problems.raise_if_any()
    if Replay.objects.filter(state__in=(Replay.State.WAITING, Replay.State.RUNNING)).count() >= _MAX_WAITING:
        raise Conflict(f"{_MAX_WAITING} replays are already waiting or running: wait until one is done, or cancel one.")
    alternative: dict[str, Any] = {"groups": groups} if groups else {}
    for name in ("gpus", "restart_seconds"):
        if getattr(spec, name) is not None:
            alternative[name] = getattr(spec, name)
    return Replay.objects.create(owner=actor, created_at=now, start=spec.start, end=spec.end, alternative=alternative)


def remove_replay(number: int, actor: User) -> None:
    """Remove a replay. A running one stops within a second."""
    require_cluster_admin(actor)
    find_replay(number).delete()


def _check_window(problems: Problems, spec: ReplaySpec, now: datetime) -> None:
    if spec.end > now:
        problems.add("end", "The period must end in the past.")
    elif spec.start >= spec.end:
        problems.add("start", "The period must begin before it ends.")
    elif spec.end - spec.start > timedelta(days=MAX_DAYS):
        problems.add("start", f"The period can have at most {MAX_DAYS} days.")
    elif not (count := jobs_between(spec.start, spec.end)[: _MAX_JOBS + 1].count()):
        problems.add("start", "There was no training in this period: choose another one.")
    elif count > _MAX_JOBS:
        problems.add("start", f"There were more than {_MAX_JOBS:,} trainings: choose a shorter period.")


def _checked_groups(
    problems: Problems, given: Mapping[str, Mapping[str, Any]], actor: User
) -> dict[str, dict[str, Any]]:
    """Return the changed rules of each group by its name."""
    found: dict[str, dict[str, Any]] = {}
    for reference, rules in given.items():
        group = by_reference(InstanceGroup.objects.select_related("resource_group"), reference)
        if group is None:
            problems.add("groups", f"Instance group {reference[:64]!a} not found.")
            continue
        if not isinstance(rules, Mapping):
            problems.add("groups", f"{group.name}: give an object with rules.")
            continue
        if unknown := sorted(rules.keys() - set(RULES)):
            problems.add(
                "groups",
                f"{group.name}: {', '.join(map(ascii, unknown))[:200]} cannot be changed: use {', '.join(RULES)}.",
            )
            continue
        try:
            found[group.name] = check_change(group, rules, actor)
        except UserError as error:
            for sentence in (sentence for sentences in error.fields.values() for sentence in sentences):
                problems.add("groups", f"{group.name}: {sentence}")
    return {name: rules for name, rules in found.items() if rules}
