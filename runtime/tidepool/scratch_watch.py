"""Watch over the temporary files of a training on a host: its ranks are ended if they take more room than they may.

The folder is measured a part at a time, because the guardian, which does it, has other things to do. Files that are
open and have no name any more are not counted.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from tidepool.shim_slots import RankProcess
from tidepool.units import size_words

__all__ = ["SCRATCH_FULL", "ScratchWatch", "sizes_below"]

#: Kind of error of ranks that were ended because of it.
SCRATCH_FULL: Final = "ScratchFull"
#: Bytes of the kernel's unit of files' sizes on the disk.
_BLOCK: Final = 512
#: Blank or backslash in a path of mountinfo.
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
#: Files that are looked at in one turn; seconds between turns, and between two measurements.
_FILES_PER_TURN, _TURN_SECONDS, _PAUSE_SECONDS = 2000, 0.05, 5.0


class ScratchWatch:
    """Measures the folder that this process has for temporary files, which is the training's own behind a wall."""

    def __init__(self, slot_bytes: int | None, host: str) -> None:
        """slot_bytes: room for each slot; None: there is no limit, and nothing is measured."""
        self._folder = tempfile.gettempdir()
        self._slot_bytes = slot_bytes
        self._host = host
        self._sizes: Iterator[int] | None = None
        self._found = 0
        #: Most slots that the training has had here: what it wrote on them stays when it gives some back.
        self._slots = 0
        #: Monotonic time of the next turn; None: there is none.
        self.next_look_at: float | None = None if slot_bytes is None else time.monotonic() + _PAUSE_SECONDS

    def turn(self, ranks: Collection[RankProcess], kill: Callable[[RankProcess], None]) -> None:
        """Measure a part; when the whole is known and too large, end the ranks."""
        if self._slot_bytes is None or self.next_look_at is None or time.monotonic() < self.next_look_at:
            return
        self._slots = max(self._slots, len({slot for rank in ranks for slot in rank.slots}))
        if self._measure():
            if self._found > self._slot_bytes * self._slots:
                self._end(ranks, self._slot_bytes * self._slots, kill)
            self._sizes, self._found = None, 0
            self.next_look_at = time.monotonic() + _PAUSE_SECONDS
        else:
            self.next_look_at = time.monotonic() + _TURN_SECONDS

    def _measure(self) -> bool:
        """Look at some more files; return whether these were the last."""
        if self._sizes is None:
            self._sizes = sizes_below(self._folder)
        for number, size in enumerate(self._sizes, 1):
            self._found += size
            if number == _FILES_PER_TURN:
                return False
        return True

    def _end(self, ranks: Collection[RankProcess], room: int, kill: Callable[[RankProcess], None]) -> None:
        sentence = (
            f"the temporary files of this training on {self._host} take {size_words(self._found)}, and it may have "
            f"{size_words(room)} there (TIDEPOOL_SLOT_SCRATCH): remove what is not needed, or write to RESULT_DIR"
        )
        for rank in ranks:
            if rank.fenced is None:
                rank.fenced = SCRATCH_FULL, sentence
                kill(rank)


def sizes_below(folder: str) -> Iterator[int]:
    """Yield the bytes on the disk of each file and folder below one.

    What has gone meanwhile is left out, and so is what is mounted there: code and results whose path begins with /tmp.
    """
    folders, linked, mounts = [os.path.realpath(folder)], set[int](), _mounts()
    while folders:
        try:
            entries = [*os.scandir(folders.pop())]
        except OSError:  # removed, or closed by the script to itself
            continue
        for entry in entries:
            if entry.path in mounts:
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if is_folder:
                folders.append(entry.path)
            elif facts.st_nlink > 1:  # a file with several names is counted once
                if facts.st_ino in linked:
                    continue
                linked.add(facts.st_ino)
            yield _BLOCK * facts.st_blocks


def _mounts() -> set[str]:
    """Return the places where something is mounted. A mount of another folder of the same disk has the same device."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return {os.fsdecode(_ESCAPED.sub(lambda octal: bytes([int(octal[1], 8)]), line.split()[4])) for line in lines}
