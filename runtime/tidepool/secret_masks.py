"""Mask over secret values in texts and in bytes that arrive in pieces."""

import re
from collections.abc import Iterable

__all__ = ["MASK", "Mask"]

MASK = "***"
#: Shortest line of a value of several lines that is masked alone, in characters.
_LEAST_LINE = 8


class Mask:
    """Replacement of secret values, and of their longer lines, in bytes that arrive in pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        found = {value.strip() for value in values}
        found |= {line.strip() for value in found for line in value.splitlines() if len(line.strip()) >= _LEAST_LINE}
        # The longest first: a value may begin with another one.
        self._values = sorted((value.encode() for value in found if value), key=len, reverse=True)
        self._whole = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")
        firsts = b"".join(re.escape(value[:1]) for value in self._values)
        self._first = re.compile(b"[" + firsts + b"]") if firsts else re.compile(b"(?!)")
        self._held = b""

    def text(self, text: str) -> str:
        """Return a whole text, masked."""
        return self._replaced(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def feed(self, data: bytes) -> bytes:
        """Return what can be written so far. An end that may be the beginning of a value is held back."""
        data = self._held + data
        kept = self._open_at(data)
        self._held = data[kept:]
        return self._replaced(data[:kept])

    def rest(self) -> bytes:
        """Return what was held back: nothing follows."""
        rest, self._held = self._replaced(self._held), b""
        return rest

    def _replaced(self, data: bytes) -> bytes:
        return self._whole.sub(MASK.encode(), data)

    def _open_at(self, data: bytes) -> int:
        """Return the position from which on the data may be the beginning of a value; its length if there is none."""
        longest = len(self._values[0]) if self._values else 0
        start = max(0, len(data) - longest + 1)
        inside = [(found.start(), found.end()) for found in self._whole.finditer(data) if found.end() > start]
        for found in self._first.finditer(data, start):
            place = found.start()
            if any(begin < place < end for begin, end in inside):
                continue
            tail = data[place:]
            if any(len(value) > len(tail) and value.startswith(tail) for value in self._values):
                return place
        return len(data)
