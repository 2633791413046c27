"""Points of curves, and the parsing of numbers and names."""

import math
from dataclasses import dataclass, field

__all__ = ["MAX_NAME", "Point", "cleaned_name", "number"]

MAX_NAME = 64


@dataclass(frozen=True)
class Point:
    """Metrics after a step, and the progress of the script."""

    step: int
    #: Name -> value; None stands for NaN and infinity.
    metrics: dict[str, float | None] = field(default_factory=dict)
    epoch: int = 0
    #: Progress of the whole training, 0 to 1; None: unknown.
    progress: float | None = None
    #: Time in Unix seconds; None: the time of reading.
    at: float | None = None


def number(text: str) -> float | None:
    """Parse a number, with or without thousands separators and percent sign; NaN and infinity give None.

    Raises ValueError.
    """
    value = float(text.strip().rstrip("%").replace(",", ""))
    return value if math.isfinite(value) else None


def cleaned_name(text: str) -> str:
    """Return a printable name of a metric without blanks at its ends, shortened at its beginning."""
    name = "".join(letter for letter in text if letter.isprintable()).strip()
    return name[-MAX_NAME:]
