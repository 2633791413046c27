"""Progress of this process's training: the session sets it, and it is read when the end of the rank is recorded."""

from __future__ import annotations

__all__ = ["note_step", "noted_step"]

_step: int | None = None


def note_step(step: int) -> None:
    """`step` steps are completed."""
    global _step
    _step = step


def noted_step() -> int | None:
    """None: no training has begun here."""
    return _step
