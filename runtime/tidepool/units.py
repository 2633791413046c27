"""Sizes of memory and files for people. Pages, their scripts and the command line have the same units."""

import math

__all__ = ["SIZE_UNITS", "size_words"]

#: Each unit has 1,024 of the unit before.
SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_words(count: float) -> str:
    """Return a number of bytes for people: "12 B", "307.6 MiB". `sizeWords` in static/js/words.js agrees."""
    tenths, unit, scale = 10 * math.floor(count + 0.5), 0, 1024
    while unit < len(SIZE_UNITS) - 1 and tenths >= 10 * 1024:
        tenths, unit, scale = math.floor(10 * count / scale + 0.5), unit + 1, scale * 1024
    return f"{tenths // 10 if tenths % 10 == 0 else tenths / 10} {SIZE_UNITS[unit]}"
