"""Snapshots of torch's allocator at the moment when a GPU's memory does not suffice, while all tensors are still there.

torch calls an observer just before it raises OutOfMemoryError. A script may catch that error and go on, so nothing here
may fail, take long each time, or fill a disk.
"""

import pickle
import sys
import time
from pathlib import Path
from typing import IO, Any

import torch

from tidepool.env import rank_context
from tidepool.gpu_shortage import note_shortage
from tidepool.torch.rank.memory_summary import Shortage, shortage_words

__all__ = ["SNAPSHOT_FILE", "ShortageRecorder", "record_shortages"]

#: Name of the newest snapshot in the rank's log folder.
SNAPSHOT_FILE = "gpu-memory.pickle"
#: Seconds that all snapshots of a process may take, and bytes of one.
_MOST_SECONDS = 20.0
_MOST_BYTES = 512 * 1024**2

_recorders: list["ShortageRecorder"] = []


def record_shortages() -> None:
    """Have torch tell each lack of a GPU's memory from the moment when CUDA begins; again without effect."""
    context = rank_context()
    if context is None or _recorders:
        return
    recorder = ShortageRecorder(context.log_dir, Path(context.launch.code_folder))
    _recorders.append(recorder)
    cuda: Any = torch._C
    torch.cuda._lazy_call(lambda: cuda._cuda_attach_out_of_memory_observer(recorder.note))  # type: ignore[no-untyped-call]


class ShortageRecorder:
    def __init__(self, folder: Path, code: Path) -> None:
        self._folder, self._code = folder, code
        self._spent = 0.0

    def note(self, device: int, wanted: int, limit: int, free: int) -> None:
        """Write a snapshot and say what it contains. The arguments are torch's, in bytes."""
        if self._spent > _MOST_SECONDS:
            return
        begun = time.monotonic()
        try:
            words = self._recorded(Shortage(device, wanted, limit, free))
            note_shortage(words)
            sys.stderr.write(f"tidepool: {words}\n")
        except Exception as error:  # the script gets torch's error, whatever goes wrong here
            sys.stderr.write(f"tidepool: no snapshot of the GPU's memory: {type(error).__name__}: {error}\n")
        self._spent += time.monotonic() - begun

    def _recorded(self, shortage: Shortage) -> str:
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot(shortage.device)
        words = shortage_words(shortage, snapshot["segments"], self._code)
        new = self._folder / f".{SNAPSHOT_FILE}"
        try:
            with new.open("wb") as stream:
                pickle.dump(snapshot, _Bounded(stream))
            new.rename(self._folder / SNAPSHOT_FILE)
        except _TooLargeError:
            return f"{words} The snapshot of the allocator is larger than 512 MiB, so it was not kept."
        finally:
            new.unlink(missing_ok=True)
        return words


class _TooLargeError(Exception):
    """A snapshot has more bytes than are kept."""


class _Bounded:
    """A file that is not written beyond its bound."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, _MOST_BYTES

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise _TooLargeError
        return self._stream.write(data)
