"""Checkpoints off a cluster: written when a process is told to stop; the next start goes on from them."""

import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tidepool.env import adaptdl_variable
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.state.checkpoint_files import read_checkpoint, write_files

__all__ = ["begin", "newest", "save", "write_state"]

#: Exit code that a shell reports for a program that SIGTERM has ended.
_TOLD_TO_STOP = 143
_PREFIX, _UNFINISHED, _OURS = "checkpoint-", "_checkpoint", "tidepool"


def begin(training_loop: TrainingLoop, save_all: Callable[[], object]) -> None:
    """Take over the newest checkpoint; save one and exit after the step in which SIGTERM or SIGINT comes."""
    folder = newest()
    if folder is not None and (folder / _OURS).is_dir() and not int(adaptdl_variable("REPLICA_RANK") or 0):
        read_checkpoint(folder / _OURS, training_loop.transitions.state)
        training_loop.position.records = []
    stop_requested = threading.Event()

    def stop() -> None:
        save_all()
        sys.exit(_TOLD_TO_STOP)

    def hear(number: int, frame: FrameType | None) -> None:
        stop_requested.set()
        signal.signal(number, before[number])  # the second one ends the process at once

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before |= {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    training_loop.is_stop_requested, training_loop.stop = stop_requested.is_set, stop


def newest() -> Path | None:
    """Return the folder of the newest checkpoint; None: there is none."""
    path = adaptdl_variable("CHECKPOINT_PATH")
    if path is None or not Path(path).is_dir():
        return None
    return max(_numbered(Path(path)).items(), default=(0, None))[1]


def save(restarts: int, states: dict[str, bytes], training_loop: TrainingLoop | None) -> str | None:
    """Write a checkpoint, which replaces all others; None: there is no folder for it."""
    path = adaptdl_variable("CHECKPOINT_PATH")
    if path is None:
        return None
    unfinished = Path(path, _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name, content in states.items():
        (unfinished / name).write_bytes(content)
    if training_loop is not None:
        structure, tensors = training_loop.transitions.state.pack()
        write_files(unfinished / _OURS, structure, [tensor.cpu().contiguous() for tensor in tensors])
    older = _numbered(Path(path))
    unfinished.rename(Path(path, f"{_PREFIX}{max([restarts, *(number + 1 for number in older)])}"))
    for folder in older.values():
        shutil.rmtree(folder)
    return path


def write_state(folder: str, name: str, content: bytes) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, name).write_bytes(content)


def _numbered(path: Path) -> dict[int, Path]:
    found = {folder.name.removeprefix(_PREFIX): folder for folder in path.iterdir() if folder.name.startswith(_PREFIX)}
    return {int(number): folder for number, folder in found.items() if number.isdecimal()}
