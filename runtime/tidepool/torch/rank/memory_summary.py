"""Words on what has filled a GPU's memory, from a snapshot of torch's allocator. Pure: it needs no GPU."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidepool.units import size_words

__all__ = ["Shortage", "shortage_words"]

#: Number of kinds of tensors that are named.
_MOST_NAMED = 3
#: Beginnings of the states of blocks that tensors have, or that another stream still uses.
_IN_USE = "active"


class Shortage(NamedTuple):
    """A request for memory that a GPU could not meet. Sizes in bytes. limit: all that this process may have."""

    device: int
    wanted: int
    limit: int
    free: int


def shortage_words(shortage: Shortage, segments: Iterable[Mapping[str, Any]], code: Path) -> str:
    """Return sentences on what was asked for, what was there, and which tensors have the rest.

    segments: of torch's snapshot. code: folder of the script, whose lines are named where torch has recorded stacks.
    """
    blocks = [*_blocks(segments, shortage.device)]
    tensors = [block for block in blocks if str(block["state"]).startswith(_IN_USE)]
    spare = [int(block["size"]) for block in blocks if block["state"] == "inactive"]
    taken = sum(int(block["size"]) for block in tensors)
    held = f", and torch's allocator held {size_words(sum(spare))} more" if spare else ""
    pieces = f" in pieces of at most {size_words(max(spare))}" if spare else ""
    words = (
        f"{size_words(shortage.wanted)} of the GPU's memory were asked for where {size_words(shortage.free)} of"
        f" {size_words(shortage.limit)} were free: tensors took {size_words(taken)}{held}{pieces}."
    )
    return f"{words}{_largest(tensors, code)}{_fragmented(shortage, sum(spare))}"


def _blocks(segments: Iterable[Mapping[str, Any]], device: int) -> Iterator[Mapping[str, Any]]:
    for segment in segments:
        if segment.get("device", device) == device:
            yield from segment["blocks"]


def _largest(tensors: Sequence[Mapping[str, Any]], code: Path) -> str:
    """Return the lines of the script that have made most of the tensors or, where torch does not know them, sizes."""
    sizes, counts = Counter[str](), Counter[str]()
    for block in tensors:
        name = _line_of(block.get("frames", ()), code) or f"of {size_words(int(block['size']))}"
        sizes[name] += int(block["size"])
        counts[name] += 1
    if not sizes:
        return ""
    named = [
        f"{counts[name]} tensor{'s' * (counts[name] != 1)} {name} ({size_words(size)})"
        for name, size in sizes.most_common(_MOST_NAMED)
    ]
    return f" The largest part: {', '.join(named)}."


def _line_of(frames: Sequence[Mapping[str, Any]], code: Path) -> str:
    """Return "made in train.py line 30, in main": the innermost frame of the script; "": there is none."""
    for frame in frames:
        file = Path(str(frame.get("filename", "")))
        if file.is_relative_to(code):
            return f"made in {file.relative_to(code)} line {frame.get('line')}, in {frame.get('name')}"
    return ""


def _fragmented(shortage: Shortage, spare: int) -> str:
    """Return the remedy where the allocator has held enough memory, in pieces that are too small."""
    if spare < shortage.wanted:
        return ""
    return (
        " The allocator had enough, in pieces that are too small: PYTORCH_ALLOC_CONF=expandable_segments:True among the"
        " training's variables avoids that."
    )
