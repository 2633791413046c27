"""The parts *Flame graph* and *Trace* of a training's page."""

from typing import Any

from insights.recordings.flame import drawn_flame, flame_of
from insights.recordings.trace import trace_of
from jobs.actions.recordings import LIMITS
from jobs.models import Job

__all__ = ["recordings_part"]

#: Height of a row of the drawing, in pixels.
_ROW = 19


def recordings_part(job: Job) -> dict[str, Any]:
    """Return the variables of the template."""
    flame, trace = flame_of(job), trace_of(job)
    boxes = drawn_flame(job)
    return {
        "flame": flame,
        "trace": trace,
        "boxes": [(box, box.row * _ROW) for box in boxes],
        "flame_height": (max((box.row for box in boxes), default=0) + 1) * _ROW,
        "is_recording": "recording" in (flame.state, trace.state),
        "seconds_limits": LIMITS["flame"][1:],
        "steps_limits": LIMITS["trace"][1:],
    }
