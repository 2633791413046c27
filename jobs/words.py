"""Words of sentences about trainings: plurals, lists, and labels of other trainings."""

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import bidirectional

from core.text import plural

__all__ = [
    "ANOTHER_USERS_TRAINING",
    "NO_KIND",
    "capitalized",
    "gpus",
    "isolated",
    "label",
    "listed",
    "speed_source",
    "trainings",
]

#: Label of GPUs whose driver reports no model.
NO_KIND = "GPUs of an unknown model"

#: Label of a job that belongs to another user.
ANOTHER_USERS_TRAINING = "another user's training"
_ANOTHER_USERS_STUDY = "another user's study"

_WHO = {
    "ending": "a training that is ending",
    "itself": "this training itself",
    "stranger": ANOTHER_USERS_TRAINING,
}


def gpus(count: int) -> str:
    return plural(count, "{count} GPU", "{count} GPUs")


def trainings(count: int) -> str:
    return plural(count, "{count} training", "{count} trainings")


def speed_source(source: str, count: int, third: str = "") -> str:
    """Return the origin of a training's speed on a kind of GPU; see `scheduling.policies.kind_ratios.Source`.

    count: number of trainings whose median it is.
    third: the kind by way of which the speed is estimated.
    """
    if source == "code":
        return f"median of {trainings(count)} of this code"
    if source == "others":
        return f"median of {trainings(count)} of other code"
    if source == "third":
        way = f"by way of {third}" if third else "by way of a third kind"
        return f"estimated {way}, from {trainings(count)}"
    return "measured" if source == "measured" else "assumed, no training was measured on both"


def capitalized(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def label(entry: Mapping[str, Any]) -> str:
    """Return the label of the entry's job for this reader; see `explain.case.label`.

    An entry with a number of trainings is a study, and names one of them.
    """
    if "trainings" not in entry:
        return isolated(str(entry["name"])) if "name" in entry else _WHO[entry["who"]]
    return f"the study of {isolated(str(entry['name']))}" if "name" in entry else _ANOTHER_USERS_STUDY


def isolated(name: str) -> str:
    """Return a name that keeps the words of the sentence around it in order: one with letters that run from right to
    left is enclosed in Unicode's isolates."""
    runs_left = any(bidirectional(letter) in ("R", "AL") for letter in name)
    return f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}" if runs_left else name


def listed(names: Sequence[str], noun: str) -> str:
    """Return one or two distinct names in full, otherwise a count with the noun."""
    if len(names) == 1:
        return names[0]
    if len(names) == 2 and names[0] != names[1]:
        return f"{names[0]} and {names[1]}"
    return f"{len(names)} {noun}"
