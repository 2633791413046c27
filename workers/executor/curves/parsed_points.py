"""Points of curves, and the parsing of numbers and names."""

import math
import re
from dataclasses import dataclass, field

__all__ = ["MAX_NAME", "Point", "cleaned_name", "number"]

MAX_NAME = 64
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")


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
    #: Whether the source states steps or epochs. If not, the step is the number of the point.
    counted: bool = True


def number(text: str, *, is_measured: bool = False) -> float | None:
    """Parse a number, with or without thousands separators and percent sign; NaN and infinity give None.

    A comma in front of other than three digits is a decimal comma. In `2,303` it is one if the number is measured, as a
    loss is: counts are printed with thousands separators, and measurements with them also have a decimal point.
    Raises ValueError.
    """
    text = text.strip().rstrip("%")
    is_whole = _THOUSANDS.fullmatch(text) and not (is_measured and text.count(",") == 1 and "." not in text)
    value = float(text.replace(",", "" if is_whole or text.count(",") > 1 or "." in text else "."))
    return value if math.isfinite(value) else None


def cleaned_name(text: str) -> str:
    """Return a printable name of a metric without blanks at its ends, shortened at its beginning."""
    name = "".join(letter for letter in text if letter.isprintable()).strip()
    return name[-MAX_NAME:]
