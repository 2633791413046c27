"""Sizes of memory and files, and numbers of cores, for people.

Pages, their scripts and the command line have the same units.
"""

import math
import re

__all__ = ["SIZE_UNITS", "cores_words", "size_in", "size_words"]

#: Each unit has 1,024 of the unit before.
SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_words(count: float) -> str:
    """Return a number of bytes for people: "12 B", "307.6 MiB". `sizeWords` in static/js/words.js agrees."""
    tenths, unit, scale = 10 * math.floor(count + 0.5), 0, 1024
    while unit < len(SIZE_UNITS) - 1 and tenths >= 10 * 1024:
        tenths, unit, scale = math.floor(10 * count / scale + 0.5), unit + 1, scale * 1024
    return f"{tenths // 10 if tenths % 10 == 0 else tenths / 10} {SIZE_UNITS[unit]}"


def size_in(text: str) -> int | None:
    """Return the bytes that a text such as "16 GiB", "16G" or "512M" means; None: it is no size.

    Units are powers of 1,024, as on all pages; a number alone counts bytes.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?|\d{1,18})\s*(?:([kmgt])(?:i?b)?|b)?", text.strip(), re.IGNORECASE)
    if found is None:
        return None
    power = "kmgt".index(found[2].lower()) + 1 if found[2] else 0
    unit: int = 1024**power
    return math.floor(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def cores_words(cores: float) -> str:
    """Return a number of processors for people: "1 core", "7.5 cores"."""
    return f"{round(cores, 2):g} {'core' if round(cores, 2) == 1 else 'cores'}"
