"""Xid errors in the kernel's log since the machine was started. NVML tells only those that come while it is asked."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["XidError", "read_xids", "xids_in"]

_LOG: Final = Path("/dev/kmsg")
#: Largest size of one record of the log, as the kernel's documentation has it.
_RECORD_BYTES: Final = 8192
#: Largest number of records that are read.
_MOST_RECORDS: Final = 1_000_000
#: Microseconds since the start of the machine, and the driver's words.
_XID = re.compile(r"\d+,\d+,(\d+),[^;]*;NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


@dataclass(frozen=True)
class XidError:
    #: Address of the GPU as PCI has it, such as 0000:3b:00.
    address: str
    number: int
    #: Seconds since the start of the machine.
    seconds: float


def read_xids(log: Path = _LOG) -> tuple[XidError, ...] | None:
    """Return the errors, the oldest first; None: this process may not read the log."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return xids_in(_records(descriptor))
    except PermissionError:
        return None
    finally:
        os.close(descriptor)


def xids_in(records: Iterable[str]) -> tuple[XidError, ...]:
    matches = filter(None, map(_XID.match, records))
    return tuple(XidError(found[2].lower(), int(found[3]), int(found[1]) / 1e6) for found in matches)


def _records(descriptor: int) -> Iterable[str]:
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BrokenPipeError:  # the record was overwritten meanwhile; the next read has the one behind it
            continue
        except BlockingIOError:
            return
        if not record:
            return
        yield record.decode(errors="replace")
