"""Calls that all ranks of a training make together: where a script makes one, and words for ranks that make others.

A rank that sums or gathers over all ranks waits until all of them do the same. If another rank goes on to something
else, none of them can go on.
"""

import os
import sysconfig
from collections.abc import Iterable, Mapping
from functools import cache
from types import FrameType

import msgspec

__all__ = ["CollectiveCall", "calls_differ", "described", "place_in_script"]

_OURS = ("tidepool", "adaptdl")


class CollectiveCall(msgspec.Struct, frozen=True):
    """A collective of all ranks that a rank has entered."""

    #: Number of the collective since the group was formed: the same on all ranks.
    number: int
    #: Name of the function that was called, or of what is summed: the same on all ranks.
    kind: str
    #: File and line of the script; empty if it is not in the stack.
    place: str = ""


def place_in_script(frame: FrameType | None) -> str:
    """Return file and line of the innermost frame at or above `frame` that is the script's own."""
    while frame is not None:
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _OURS and not file.startswith(("<", *_libraries())):
            return f"{_short(file)}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _libraries() -> tuple[str, ...]:
    return tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _short(file: str) -> str:
    """Return the path from the working folder, or, of a file elsewhere, its name."""
    relative = os.path.relpath(file)
    return os.path.basename(file) if relative.startswith(os.pardir) else relative


def described(kind: str, place: str) -> str:
    return f"{kind} at {place}" if place else kind


def calls_differ(calls: Mapping[str, str]) -> str:
    """Return the sentence that ends a training whose ranks wait in different calls. calls: in words, by rank."""
    ranks: dict[str, list[str]] = {}
    for rank, call in calls.items():
        ranks.setdefault(call, []).append(rank)
    where = " and ".join(f"{_listed(names)} in {call}" for call, names in ranks.items())
    return (
        f"the processes of this training wait for each other in different calls: {where}. All of them have to make the "
        "same calls in the same order: let the script decide by what is the same in all of them (the epoch, a number "
        "that was summed), not by the rank or by a count of its own batches"
    )


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
