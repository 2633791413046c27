"""What somebody may see of a replay, and what each training had at a moment of it.

An administrator sees all. Others see figures of the instance groups that they may use, and in these their own trainings
by name, others' without name and number.
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

__all__ = ["PLAYS", "Moment", "Seen", "as_seen", "at_moment", "moments_seen", "seen_jobs"]

PLAYS: Final = ("same", "other")
NOT_KEPT: Final = (
    "Of this play no reasons are kept: it was not asked for, is not over, or had too many changes. Choose a shorter "
    "window."
)
#: Of the whole cluster: for administrators.
_OF_ALL = frozenset(
    {"trainings", "counted", "unfinished", "withdrawn", "unmeasured", "recorded", "same", "other", "series"}
)


class Seen(NamedTuple):
    """A training that the reader may know of; its name and number only if it is `shown`."""

    name: str
    shown: bool


@dataclass(frozen=True)
class Moment:
    """A training that had come and was not over."""

    job: Annotated[int | None, "null: another user's training."]
    recorded: Annotated[int, "GPUs that it held then, as recorded."]
    replayed: Annotated[int, "GPUs that it held then in the replay."]
    target: Annotated[int, "GPUs that it was to have."]
    text: Annotated[str, "Why, in the words of its owner."]


def as_seen(replay: Replay, reader: Asking) -> Replay:
    """A copy with what the reader may see of its rules and figures. It is not to be saved."""
    if is_cluster_admin(reader):
        return replay
    groups = set(visible_groups(reader).values_list("name", flat=True))
    seen = copy(replay)
    rules = {name: rules for name, rules in replay.alternative.get("groups", {}).items() if name in groups}
    seen.alternative = {name: value for name, value in replay.alternative.items() if name != "groups"}
    if rules:
        seen.alternative["groups"] = rules
    seen.result = {name: value for name, value in replay.result.items() if name not in _OF_ALL}
    if replay.result:
        figures = replay.result["groups"]
        seen.result["groups"] = {name: figures[name] for name in sorted(figures.keys() & groups)}
    return seen


def seen_jobs(reader: Asking, numbers: Iterable[int]) -> dict[int, Seen]:
    """Of these trainings, those of groups that the reader may use."""
    jobs = Job.objects.filter(pk__in=set(numbers)).order_by()
    if is_cluster_admin(reader):
        return {pk: Seen(name, shown=True) for pk, name in jobs.values_list("pk", "name")}
    own = jobs.filter(instance_group__in=visible_groups(reader).values("pk")).values_list("pk", "name", "owner_id")
    return {pk: Seen(name if owner == reader.pk else "", shown=owner == reader.pk) for pk, name, owner in own}


def at_moment(replay: Replay, play: str, at: datetime) -> list[Moment] | None:
    """Return what each training had at that moment of the play, in order of number; None: nothing of it was kept."""
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


def moments_seen(replay: Replay, play: str, at: datetime, reader: Asking) -> list[tuple[Moment, str]]:
    """Moments of trainings that the reader may know of, with their names. Raises UserError where there are none."""
    if not replay.start <= at <= replay.end:
        raise field_error("at", "Give a time within the replay's.")
    moments = at_moment(replay, play, at)
    if moments is None:
        raise field_error("play", NOT_KEPT)
    seen = seen_jobs(reader, [one.job for one in moments if one.job is not None])
    told = ((moment, seen[moment.job]) for moment in moments if moment.job in seen)
    return [(moment if one.shown else replace(moment, job=None, text=""), one.name) for moment, one in told]


def _newest(changes: Sequence[Sequence[Any]], seconds: float) -> dict[int, Sequence[Any]]:
    """Job -> the rest of its newest change until then. They are in order of time."""
    found: dict[int, Sequence[Any]] = {}
    for at, job, *rest in changes:
        if at > seconds:
            break
        found[job] = rest
    return found


def _slots(held: dict[int, Sequence[Any]], job: int) -> int:
    return int(held[job][0]) if job in held else 0
