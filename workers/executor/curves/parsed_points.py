"""Points that sources give, and the parsing of numbers and names."""

import math
from dataclasses import dataclass, field

__all__ = ["MAX_NAME", "Point", "cleaned_name", "number"]

MAX_NAME = 64


@dataclass(frozen=True)
class Point:
    """Metrics after a step, and how far the script is; only what is known."""

    step: int
    #: None stands for a value that is no number or infinite.
    metrics: dict[str, float | None] = field(default_factory=dict)
    epoch: int = 0
    #: Of the whole training, 0..1.
    progress: float | None = None
    #: Unix seconds; None: when it was read.
    at: float | None = None


def number(text: str) -> float | None:
    """A number as scripts write it, maybe with thousands' commas or a percent sign. Raises ValueError."""
    value = float(text.strip().rstrip("%").replace(",", ""))
    return value if math.isfinite(value) else None


def cleaned_name(text: str) -> str:
    """The name of a metric: printable, without blanks at its ends, and its end where it is too long."""
    name = "".join(letter for letter in text if letter.isprintable()).strip()
    return name[-MAX_NAME:]
