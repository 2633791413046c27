"""Numbers that scripts and users write, which may be as large as they like."""

import math
from typing import Any

__all__ = ["finite"]


def finite(value: Any) -> float | None:
    """Return the number; None, which charts draw as a gap, for what is none or not finite."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # an integer of 400 digits
        return None
