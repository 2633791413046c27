"""Words of sentences about trainings: plurals, lists, and how another training is called."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.text import plural

__all__ = ["ANOTHER_USERS_TRAINING", "capitalized", "gpus", "label", "listed", "trainings"]

#: Shown in place of the name of a job that is somebody else's.
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
    """Return the text with a capital at its beginning, and the rest as it is."""
    return text[:1].upper() + text[1:]


def label(entry: Mapping[str, Any]) -> str:
    """Return the label of the job that `entry` is about, as the reader may read it; see `explain.reasons.label`."""
    return str(entry["name"]) if "name" in entry else _WHO[entry["who"]]


def listed(names: Sequence[str], noun: str) -> str:
    """One or two different names in full, otherwise how many of which noun."""
    if len(names) == 1:
        return names[0]
    if len(names) == 2 and names[0] != names[1]:
        return f"{names[0]} and {names[1]}"
    return f"{len(names)} {noun}"
