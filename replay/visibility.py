"""Parts of a replay that a user may see, and the GPUs of each training at a moment.

Administrators see everything. Other users see the figures of the instance groups that they may use, and the trainings
in them: their own by name, others' without id and name.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

from core.errors import field_error
from core.roles import Asking, is_cluster_admin
from jobs.messages import text_of
from jobs.models import Job
from jobs.queries.groups import visible_groups
from replay.models import Replay

__all__ = ["PLAYS", "Moment", "VisibleJob", "at_moment", "visible_jobs_of", "visible_moments", "visible_part"]

PLAYS: Final = ("same", "other")
NO_MOMENTS: Final = (
    "No reasons are stored for this replay: it was not requested, is not done, or had too many changes. Choose a "
    "shorter period."
)
#: Fields of a result that cover the whole cluster, for administrators.
_CLUSTER_FIELDS = frozenset(
    {"trainings", "counted", "unfinished", "withdrawn", "unmeasured", "recorded", "same", "other", "series"}
)


class VisibleJob(NamedTuple):
    """A training that the reader may see; by name and id only if it is `shown`."""

    name: str
    shown: bool


@dataclass(frozen=True)
class Moment:
    """State of an unfinished training at a moment."""

    job: Annotated[int | None, "Id; null: another user's training."]
    recorded: Annotated[int, "GPUs held at that time, as recorded."]
    replayed: Annotated[int, "GPUs held at that time in the replay."]
    target: Annotated[int, "Target number of GPUs in the replay."]
    text: Annotated[str, "Reason, as a sentence for the owner."]


def visible_part(replay: Replay, reader: Asking) -> Replay:
    """Return a copy with the rules and figures that the reader may see. The copy must not be saved."""
    if is_cluster_admin(reader):
        return replay
    groups = set(visible_groups(reader).values_list("name", flat=True))
    seen = copy(replay)
    rules = {name: rules for name, rules in replay.alternative.get("groups", {}).items() if name in groups}
    seen.alternative = {name: value for name, value in replay.alternative.items() if name != "groups"}
    if rules:
        seen.alternative["groups"] = rules
    seen.result = {name: value for name, value in replay.result.items() if name not in _CLUSTER_FIELDS}
    if replay.result:
        figures = replay.result["groups"]
        seen.result["groups"] = {name: figures[name] for name in sorted(figures.keys() & groups)}
    return seen


def visible_jobs_of(reader: Asking, numbers: Iterable[int]) -> dict[int, VisibleJob]:
    """Return the trainings in groups that the reader may use, by id."""
    jobs = Job.objects.filter(pk__in=set(numbers)).order_by()
    if is_cluster_admin(reader):
        return {pk: VisibleJob(name, shown=True) for pk, name in jobs.values_list("pk", "name")}
    own = jobs.filter(instance_group__in=visible_groups(reader).values("pk")).values_list("pk", "name", "owner_id")
    return {pk: VisibleJob(name if owner == reader.pk else "", shown=owner == reader.pk) for pk, name, owner in own}


def at_moment(replay: Replay, play: str, at: datetime) -> list[Moment] | None:
    """Return the moments of all unfinished trainings, in order of id; None: none are stored for this play."""
    moments, seconds = replay.moments, at.timestamp()
    if play not in moments:
        return None
    recorded, replayed = (_newest(moments[name]["held"], seconds) for name in ("recorded", play))
    notes = _newest(moments[play]["notes"], seconds)
    return [
        Moment(job, _slots(recorded, job), _slots(replayed, job), target, text_of(params))
        for job, (target, params) in sorted(notes.items())
        if params is not None
    ]


def visible_moments(replay: Replay, play: str, at: datetime, reader: Asking) -> list[tuple[Moment, str]]:
    """Return the moments of trainings that the reader may see, with their names. Raises UserError."""
    if not replay.start <= at <= replay.end:
        raise field_error("at", "Enter a time within the replayed period.")
    moments = at_moment(replay, play, at)
    if moments is None:
        raise field_error("play", NO_MOMENTS)
    seen = visible_jobs_of(reader, [one.job for one in moments if one.job is not None])
    visible = ((moment, seen[moment.job]) for moment in moments if moment.job in seen)
    return [(moment if one.shown else replace(moment, job=None, text=""), one.name) for moment, one in visible]


def _newest(changes: Sequence[Sequence[Any]], seconds: float) -> dict[int, Sequence[Any]]:
    """Return job -> the rest of its newest change up to `seconds`. changes: sorted by time."""
    found: dict[int, Sequence[Any]] = {}
    for at, job, *rest in changes:
        if at > seconds:
            break
        found[job] = rest
    return found


def _slots(held: dict[int, Sequence[Any]], job: int) -> int:
    return int(held[job][0]) if job in held else 0
