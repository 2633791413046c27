"""Small phrases for sentences about GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.snapshot import JobView

__all__ = ["compared", "gpus", "gpus_word", "label", "listed"]


def gpus_word(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"


def gpus(count: int) -> str:
    return f"{count} {gpus_word(count)}"


def label(reader: JobView, other: JobView | None) -> str:
    """What the owner of `reader` may read of another job. None: a job that is ending."""
    if other is None:
        return "a training that is ending"
    if other.id == reader.id:
        return "this training itself"
    if other.owner != reader.owner:
        return "another user's training"
    return other.name


def listed(names: Sequence[str], noun: str) -> str:
    """One or two different names in full, otherwise how many of which noun."""
    if len(names) == 1:
        return names[0]
    if len(names) == 2 and names[0] != names[1]:
        return f"{names[0]} and {names[1]}"
    return f"{len(names)} {noun}"


def compared(mine: int, other: str, theirs: int) -> str:
    """One sentence part about two priorities, as the owner of the first one reads it."""
    if theirs == mine:
        return f"{other} has the same priority ({mine})"
    if theirs > mine:
        how = _times(theirs, mine)
        priority = f"{how} your priority" if how else "a higher priority than yours"
        return f"{other} has {priority} ({theirs} to {mine})"
    how = _times(mine, theirs)
    priority = f"{how} the priority of" if how else "a higher priority than"
    return f"you have {priority} {other} ({mine} to {theirs})"


def _times(larger: int, smaller: int) -> str:
    if larger % smaller:
        return ""
    return "twice" if larger == 2 * smaller else f"{larger // smaller} times"
