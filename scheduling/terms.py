"""The arithmetic behind a job's sentence, term by term, from the numbers that the sentence was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Term", "terms"]

#: Keys of an explanation's params, in the order in which one reckons, and what they are called.
_NAMES = {
    "capacity": "GPUs that the trainings of its group share",
    "min_slots": "The least that it asks for",
    "max_slots": "The most that it asks for",
    "priority": "Its priority",
    "total_priority": "The priorities of all that share, together",
    "others_count": "Other trainings that have some",
    "others_slots": "GPUs that they have together",
    "floor": "The least that must be kept",
    "taken": "GPUs that it cannot have",
    "free": "GPUs that are free",
    "before": "GPUs that it had",
    "target": "GPUs that it shall have",
    "claimed": "Of these, claimed now",
    "missing": "GPUs that it lacks for now",
    "group_total": "GPUs that its instance group shares with others",
    "group_quota": "Of these, its group's quota",
    "group_weight": "Its group's weight for what is over the quotas",
    "group_deserved": "Its group's part by quota and weight, before it is made whole",
    "group_room": "What its group may have now",
}
_EVEN_IF_ZERO = frozenset({"capacity", "free", "target", "before"})


@dataclass(frozen=True)
class Term:
    name: str
    value: str
    #: Number of the job that it is about, None: its own.
    job: int | None = None


def terms(params: Mapping[str, Any]) -> list[Term]:
    """One row for each number, each other job, and the division by priority where that was what counted."""
    rows = [
        Term(name, str(params[key]))
        for key, name in _NAMES.items()
        if isinstance(params.get(key), int | float) and (params[key] or key in _EVEN_IF_ZERO)
    ]
    rows += [_other(other) for other in params.get("others", ())]
    rows += [
        Term(f"Gives back: {giver['label']}", _gpus(giver["slots"]), giver["job"]) for giver in params.get("givers", ())
    ]
    if share := _share(params):
        rows.append(share)
    return rows


def _other(other: Mapping[str, Any]) -> Term:
    limits = f"{other['min_slots']} to {other['max_slots']}"
    return Term(
        other["label"], f"{_gpus(other['slots'])}, priority {other['priority']}, asks for {limits}", other["job"]
    )


def _share(params: Mapping[str, Any]) -> Term | None:
    """By priority alone; whole GPUs, least and most of each job come after that."""
    capacity, mine = params.get("capacity"), params.get("priority")
    others = params.get("others", ())
    total = params.get("total_priority") or (mine and others and mine + sum(other["priority"] for other in others))
    if params.get("rule") not in {"by_priority", "compared"} or not (capacity and mine and total):
        return None
    exact = f"{capacity} × {mine} / {total} = {capacity * mine / total:.2f}"
    return Term("Its part by priority, before it is made whole and kept between the least and the most", exact)


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
