"""Agreement of a training's processes on the epochs of a script's loop.

A process that joins, or that resumes a checkpoint, runs the script from the top, and the script may then pass less to
the loop: PyTorch's own pattern continues from a snapshot by `range(start, epochs)`. The process that began the loop
decides; what it iterates over is part of the training's position. Without I/O.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from tidepool.refusal import Refusal

__all__ = ["continued", "described"]

T = TypeVar("T")


def described(epochs: Sequence[Any]) -> list[int]:
    """Return [first, end, step] of whole numbers at equal distances, else [count]."""
    if not epochs or any(type(number) is not int for number in epochs[:2]):
        return [len(epochs)]
    step = epochs[1] - epochs[0] if len(epochs) > 1 else 1
    numbers = range(epochs[0], epochs[0] + step * len(epochs), step) if step else range(0)
    return [numbers.start, numbers.stop, step] if numbers == epochs or list(numbers) == list(epochs) else [len(epochs)]


def continued(own: Sequence[T], loop: Sequence[int]) -> Sequence[T] | range:
    """Return the epochs of a loop under way.

    own: the epochs that this process passes. loop: those of the process that began, as `described` returns them.

    Raises RuntimeError if the two differ by more than epochs that one of them leaves out at its beginning.
    """
    mine = described(own)
    if mine == list(loop):
        return own
    if len(loop) == 3 and (not own or (len(mine) == 3 and _end_alike(range(*mine), range(*loop)))):
        return range(*loop)
    raise Refusal(
        f"this process iterates over {_words(mine)}, and the training over {_words(loop)}: every process has to pass "
        "the same epochs, or, to continue from a snapshot of its own, the last ones of them, as in range(start, epochs)"
    )


def _end_alike(one: range, other: range) -> bool:
    """Return whether the shorter one is the end of the longer one."""
    length = min(len(one), len(other))
    return one[len(one) - length :] == other[len(other) - length :]


def _words(loop: Sequence[int]) -> str:
    if len(loop) != 3:
        return f"{loop[0]} epochs"
    return f"range({', '.join(map(str, loop if loop[2] != 1 else loop[:2]))})"
