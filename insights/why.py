"""The reason for a job's GPUs: its arithmetic, term by term, and what would change it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.utils import timezone

from core.text import plural
from jobs.control.durations import lengths, with_lengths
from jobs.control.snapshots import snapshot
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from jobs.states import ACTIVE
from jobs.words import gpus, label, listed
from scheduling.remedies import Remedy, remedies

__all__ = ["Term", "remedy_text", "terms", "why"]

#: Key of an explanation's params -> its label, in the order of the arithmetic.
_NAMES = {
    "capacity": "GPUs that the trainings of the instance group share",
    "min_slots": "Minimum of the training",
    "max_slots": "Maximum of the training",
    "priority": "Priority of the training",
    "shared": "GPUs divided by priority alone",
    "sharing_count": "Other trainings that share these GPUs",
    "total_priority": "Sum of the priorities of all these trainings",
    "others_count": "Other trainings that have GPUs",
    "others_slots": "GPUs of other trainings",
    "floor": "GPUs that other trainings must keep",
    "taken": "GPUs that the training cannot get",
    "free": "Free GPUs",
    "before": "Before",
    "target": "Target",
    "claimed": "Newly assigned",
    "missing": "GPUs that the training still lacks",
    "group_total": "GPUs that the instance group shares with others",
    "group_quota": "Quota of the instance group",
    "group_weight": "Weight of the instance group for GPUs beyond all quotas",
    "group_deserved": "Share of the instance group by quota and weight, before rounding",
    "group_room": "GPUs that the instance group may have now",
}
_EVEN_IF_ZERO = frozenset({"capacity", "free", "target", "before"})


@dataclass(frozen=True)
class Term:
    name: str
    value: str
    job: Annotated[int | None, "Id of the other job that the row is about, if you may see it."] = None


def why(job: Job, user: User) -> dict[str, Any]:
    """Return the reason, its arithmetic, and changes that would give the job more GPUs."""
    rows, found = terms(job.reason_params), []
    if job.state in ACTIVE:
        at = timezone.now()
        now = with_lengths(snapshot(at), lengths({}, at), at)
        is_decided = any(view.id == job.pk for view in now.jobs)
        found = list(remedies(now, job.pk)) if is_decided else []
    numbers = [row.job for row in rows if row.job is not None]
    numbers += [remedy.value for remedy in found if remedy.kind == "end"]
    visible = set(visible_jobs(user).filter(pk__in=numbers).values_list("pk", flat=True))
    return {
        "text": job.reason_text,
        "terms": [{**asdict(row), "job": row.job if row.job in visible else None} for row in rows],
        "remedies": [
            {
                "kind": remedy.kind,
                "value": None if remedy.kind == "end" and remedy.value not in visible else remedy.value,
                "target": remedy.target,
                "starts_now": remedy.starts_now,
                "text": remedy_text(remedy),
            }
            for remedy in found
        ],
    }


def terms(params: Mapping[str, Any]) -> list[Term]:
    """Return a row for each number and each other job, and the division by priority if that decided."""
    rows = [
        Term(name, str(params[key]))
        for key, name in _NAMES.items()
        if isinstance(params.get(key), int | float) and (params[key] or key in _EVEN_IF_ZERO)
    ]
    for other in params.get("others", ()):
        limits = f"{other['min_slots']} to {other['max_slots']}"
        asks = f"{gpus(other['slots'])}, priority {other['priority']}, requests {limits}"
        rows.append(Term(label(other), asks, other["job"]))
    rows += [
        Term(f"Gives back: {label(giver)}", gpus(giver["slots"]), giver["job"]) for giver in params.get("givers", ())
    ]
    if share := _share(params):
        rows.append(share)
    return rows


def _share(params: Mapping[str, Any]) -> Term | None:
    """Return the share by priority alone, before rounding and before each job's minimum and maximum."""
    capacity, mine = params.get("shared", params.get("capacity")), params.get("priority")
    others = params.get("others", ())
    total = params.get("total_priority") or (mine and others and mine + sum(other["priority"] for other in others))
    if params.get("message") not in {"by_priority", "compared"} or not (capacity and mine and total):
        return None
    exact = f"{capacity} × {mine} / {total} = {capacity * mine / total:.2f}"
    return Term("Share by priority, before rounding, minimum and maximum", exact)


def remedy_text(remedy: Remedy) -> str:
    if remedy.kind == "end":
        assert remedy.other is not None
        return f"Once {label(remedy.other)} has ended: {_outcome(remedy)}."
    if remedy.kind == "hosts":
        return f"Once {_returning(remedy)}: {_outcome(remedy)}."
    if remedy.places is not None:
        then, now, of = remedy.places
        where = "the next in the queue" if then == 1 else f"number {then} in the queue"
        raised = f"Priority {remedy.value} instead of {remedy.former}"
        return f"{raised}: it would be {where} instead of number {now} of {of}."
    if remedy.kind == "priority":
        return f"Priority {remedy.value} instead of {remedy.former}: {_outcome(remedy)}."
    what = "minimum" if remedy.kind == "min_slots" else "maximum"
    return f"A {what} of {gpus(remedy.value)} instead of {remedy.former}: {_outcome(remedy)}."


def _returning(remedy: Remedy) -> str:
    names = listed([name for name, _ in remedy.hosts], "hosts")
    states = {state for _, state in remedy.hosts}
    if states <= {"lost", "offline"}:
        return plural(len(remedy.hosts), "{names} reports again", "{names} report again", names=names)
    if states == {"sick"}:
        return f"the faulty GPUs of {names} are returned"
    return plural(len(remedy.hosts), "{names} is in service again", "{names} are in service again", names=names)


def _outcome(remedy: Remedy) -> str:
    if remedy.starts_now:
        rest = "" if remedy.slots == remedy.target else f" of {remedy.target}"
        return f"it would start now, on {remedy.slots}{rest}"
    if not remedy.before:
        return f"it would get {gpus(remedy.target)}, when they are released"
    return f"it would have {gpus(remedy.target)} instead of {remedy.before}"
