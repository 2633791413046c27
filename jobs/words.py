"""Words of sentences about trainings: plurals, lists, and labels of other trainings."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.text import plural

__all__ = ["ANOTHER_USERS_TRAINING", "capitalized", "gpus", "label", "listed", "trainings"]

#: Label of a job that belongs to another user.
ANOTHER_USERS_TRAINING = "another user's training"

_WHO = {
    "ending": "a training that is ending",
    "itself": "this training itself",
    "stranger": ANOTHER_USERS_TRAINING,
}


def gpus(count: int) -> str:
    return plural(count, "{count} GPU", "{count} GPUs")


def trainings(count: int) -> str:
    return plural(count, "{count} training", "{count} trainings")


def capitalized(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def label(entry: Mapping[str, Any]) -> str:
    """Return the label of the entry's job for this reader; see `explain.reasons.label`."""
    return str(entry["name"]) if "name" in entry else _WHO[entry["who"]]


def listed(names: Sequence[str], noun: str) -> str:
    """Return one or two distinct names in full, otherwise a count with the noun."""
    if len(names) == 1:
        return names[0]
    if len(names) == 2 and names[0] != names[1]:
        return f"{names[0]} and {names[1]}"
    return f"{len(names)} {noun}"
