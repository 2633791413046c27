"""The fence of a training: the number of its newest lead, in a file that every host reaches that may write results.

The control plane raises the number whenever another host is to lead. The new lead's coordinator takes the fence before
it reads what its predecessor has left; a predecessor that is cut off from everything but the folder finds the number
there before it writes again. The file is overwritten in place and forced to the disk: a client of NFS may miss for a
minute that a file was replaced, and sees the new content of the same file when it opens it. It holds the number twice,
each with a checksum, so that one of them is whole whenever a write is cut short.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from tidepool.journal import written_lead
from tidepool.safe_open import open_regular

__all__ = ["Lead", "SupersededError", "newest", "take"]

_NAME = "lead"
_RECORD_BYTES = 32
_RECORDS = 2


class SupersededError(Exception):
    """A newer lead has taken the fence: this process must not write any more."""

    def __init__(self, number: int, newer: int) -> None:
        super().__init__(f"lead {number} is superseded by lead {newer}")


@dataclass(frozen=True)
class Lead:
    """The right to write in a training's folder, until a newer lead takes it. number: 0 before the first."""

    folder: Path
    number: int

    def check(self) -> None:
        """Raise SupersededError if a newer lead has taken the fence; OSError if it cannot be read."""
        found = newest(self.folder)
        if found > self.number:
            raise SupersededError(self.number, found)
        if found < self.number:  # an older lead took it at the same moment
            _write(self.folder, self.number)


def take(folder: Path, number: int) -> Lead:
    """Take the fence of the training in `folder`. Raises SupersededError if a newer lead has it."""
    lead = Lead(folder, number)
    lead.check()
    return lead


def newest(folder: Path) -> int:
    """Return the number of the newest lead; 0 if none has taken the fence.

    A file without any whole number counts as the newest lead in the training's journal.
    """
    descriptor = open_regular(folder / _NAME)
    if descriptor is None:
        return 0
    with open(descriptor, "rb") as file:
        content = file.read(_RECORDS * _RECORD_BYTES)
    numbers = [_number(content[start : start + _RECORD_BYTES]) for start in range(0, len(content), _RECORD_BYTES)]
    whole = [number for number in numbers if number is not None]
    return max(whole) if whole else written_lead(folder / "plans.jsonl")


def _write(folder: Path, number: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(folder / _NAME, flags, 0o666)
    try:
        os.pwrite(descriptor, _record(number) * _RECORDS, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _record(number: int) -> bytes:
    digits = b"%020d" % number
    return (b"%s %08x" % (digits, zlib.crc32(digits))).ljust(_RECORD_BYTES - 1) + b"\n"


def _number(record: bytes) -> int | None:
    """Return the number of a whole record; None for anything else."""
    digits = record[:20]
    return int(digits) if digits.isdigit() and record == _record(int(digits)) else None
