"""Equal stacks of several ranks as one, and the sentence on all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from insights.stacks.parsing import Frame
from insights.stacks.places import Doing, doing_of, shown_frame

__all__ = ["RankStack", "StackGroup", "folded", "sentence_of"]

_MOST_SAID = 4
#: Reasons for which a process has no stack, by `tidepool.protocol.StacksState`.
PROBLEMS = {
    "stopped": "is stopped, by SIGSTOP or a debugger",
    "in_kernel": "waits in the kernel, for a disk or a file system of the network",
    "unable": "cannot answer: it is no longer a Python process, or has only just started",
    "silent": "has not answered within 2 s",
    "ended": "has just ended",
}


@dataclass(frozen=True)
class RankStack:
    """Main thread of a rank. `frames`: the innermost first; None: it has written none, for the cause in `state`."""

    label: str
    state: str
    frames: tuple[Frame, ...] | None


@dataclass(frozen=True)
class StackGroup:
    """Ranks whose main threads have the same stack."""

    ranks: Annotated[list[str], "Labels of the ranks: their numbers, or their ids where they have none."]
    text: Annotated[str, "Activity of the ranks, in words."]
    stack: Annotated[list[str], "Frames of the main thread, the innermost first; empty: there is none."]


def folded(ranks: Iterable[RankStack], code: str) -> list[StackGroup]:
    """Return the ranks by equal stacks, the largest group first. code: folder of the script."""
    groups: dict[tuple[str, tuple[Frame, ...] | None], list[str]] = {}
    for rank in ranks:
        groups.setdefault((rank.state, rank.frames), []).append(rank.label)
    found = [
        StackGroup(labels, _words(state, frames, code, plural=len(labels) > 1), _lines(frames, code))
        for (state, frames), labels in groups.items()
    ]
    return sorted(found, key=lambda group: -len(group.ranks))


def sentence_of(groups: Sequence[StackGroup]) -> str:
    """Return "3 ranks wait for the other ranks in all_reduce, rank 2 is in dataset.py line 41, in load"."""
    total = sum(len(group.ranks) for group in groups)
    if not total:
        return "No rank has answered."
    said = [f"{_subject(group, total)} {group.text}" for group in groups[:_MOST_SAID]]
    left = sum(len(group.ranks) for group in groups[_MOST_SAID:])
    if left:
        said.append(f"{left} more do other things")
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def _subject(group: StackGroup, total: int) -> str:
    if len(group.ranks) == 1:
        return f"rank {group.ranks[0]}"
    if len(group.ranks) == total:
        return f"all {total} ranks"
    named = f" ({', '.join(group.ranks)})" if len(group.ranks) <= _MOST_SAID else ""
    return f"{len(group.ranks)} ranks{named}"


def _words(state: str, frames: tuple[Frame, ...] | None, code: str, *, plural: bool) -> str:
    if frames is None:
        words = PROBLEMS[state]
        return words if not plural else _PLURALS.get(state, words)
    doing: Doing = doing_of(frames, code)
    return doing.words(plural=plural, code=code)


_PLURALS = {
    "stopped": "are stopped, by SIGSTOP or a debugger",
    "in_kernel": "wait in the kernel, for a disk or a file system of the network",
    "unable": "cannot answer: they are no longer Python processes, or have only just started",
    "silent": "have not answered within 2 s",
    "ended": "have just ended",
}


def _lines(frames: tuple[Frame, ...] | None, code: str) -> list[str]:
    return [shown_frame(frame, code) for frame in frames or ()]
