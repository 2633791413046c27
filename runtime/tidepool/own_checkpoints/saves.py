"""Records of what libraries have saved: `journal/saved.<rank>.jsonl` in the folder of each attempt.

A checkpoint is complete once each rank that was there has recorded its end. Its path may have been moved since: the
folder of checkpoints goes from one attempt to the next.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidepool.safe_open import open_below, open_regular

__all__ = ["OwnCheckpoint", "SaveJournal", "complete_checkpoints", "remove_unfinished", "saves_in"]

_ATTEMPT = re.compile(r"attempt-(\d{1,9})")
_NAME = re.compile(r"saved\.(\d{1,6})\.jsonl")
_FOLDER = "journal"
_CHECKPOINTS = "checkpoint"
#: Names that Transformers' and Accelerate's scripts give to folders of checkpoints: nothing else is ever removed.
_OF_LIBRARIES = re.compile(r"(checkpoint|step|epoch)[-_]\d+")
#: Bytes at the end of a file that are read: those of some thousands of checkpoints.
_READ_BYTES = 1024**2
#: Longest file of JSON that is taken for whole: the Trainer's state has all that was logged.
_JSON_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class OwnCheckpoint:
    """A checkpoint of a library's, complete and there."""

    library: str
    #: Number of the library's training in the script, from 1: a script may train several times.
    training: int
    step: int
    path: Path


@dataclass(frozen=True)
class _Save:
    library: str
    training: int
    step: int
    #: Absolute, or relative to the attempt's folder.
    path: str
    #: Number of processes of the attempt.
    ranks: int
    is_over: bool
    #: Name of the file that rank 0 writes last; "": unknown.
    last_file: str = ""


class SaveJournal:
    """The writing end, of one rank."""

    def __init__(self, attempt_folder: Path, rank: int, ranks: int) -> None:
        self._folder, self._ranks = attempt_folder, ranks
        self._file = attempt_folder / _FOLDER / f"saved.{rank}.jsonl"

    def begins(self, library: str, training: int, step: int, path: Path, last_file: str = "") -> None:
        self._append(library, training, step, path, is_over=False, last_file=last_file)

    def ends(self, library: str, training: int, step: int, path: Path) -> None:
        self._append(library, training, step, path, is_over=True)

    def _append(self, library: str, training: int, step: int, path: Path, **rest: Any) -> None:
        whole = Path(os.path.abspath(path))
        inside = whole.is_relative_to(self._folder)
        name = str(whole.relative_to(self._folder) if inside else whole)
        line = {"library": library, "training": training, "step": step, "path": name, "ranks": self._ranks, **rest}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file, "ab") as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def complete_checkpoints(job_folder: Path, *, before: int | None = None) -> list[OwnCheckpoint]:
    """Return the complete checkpoints that are still there, the newest last. before: of attempts before this one."""
    found: dict[str, OwnCheckpoint] = {}
    attempts = _attempts(job_folder)
    for number in _until(attempts, before):
        by_rank = _saves_by_rank(job_folder, number)
        for save in by_rank.get(0, {}).values():
            path = _place(job_folder, attempts, number, save.path)
            found.pop(str(path), None)
            if path is not None and _is_complete(save, by_rank, path):
                found[str(path)] = OwnCheckpoint(save.library, save.training, save.step, path)
    return list(found.values())


def remove_unfinished(job_folder: Path, *, before: int) -> list[Path]:
    """Remove what attempts before this one began to save and did not finish; return what was there. Idempotent."""
    attempts, removed = _attempts(job_folder), []
    complete = {checkpoint.path for checkpoint in complete_checkpoints(job_folder, before=before)}
    for number in _until(attempts, before):
        for save in _saves_by_rank(job_folder, number).get(0, {}).values():
            path = _place(job_folder, attempts, number, save.path)
            if path is not None and path not in complete and not save.is_over and _OF_LIBRARIES.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed


def saves_in(job_folder: Path, attempt: int) -> bool:
    """Return whether a library has saved anything in this attempt."""
    return any(save.is_over for saves in _saves_by_rank(job_folder, attempt).values() for save in saves.values())


def _attempts(job_folder: Path) -> list[int]:
    numbers = []
    with suppress(OSError):  # no folder, no attempt
        numbers = [int(match[1]) for name in os.listdir(job_folder) if (match := _ATTEMPT.fullmatch(name))]
    return sorted(numbers)


def _until(attempts: list[int], before: int | None) -> list[int]:
    return [number for number in attempts if before is None or number < before]


def _saves_by_rank(job_folder: Path, attempt: int) -> dict[int, dict[str, _Save]]:
    """Return, for each rank, the newest record of each path, in the order of these records."""
    folder = job_folder / f"attempt-{attempt}"
    found: dict[int, dict[str, _Save]] = {}
    names = []
    with suppress(OSError):
        names = os.listdir(folder / _FOLDER)
    for name in names:
        if match := _NAME.fullmatch(name):
            saves = found.setdefault(int(match[1]), {})
            for save in _read(folder, name):
                saves.pop(save.path, None)
                saves[save.path] = save
    return found


def _read(folder: Path, name: str) -> Iterator[_Save]:
    """Yield the records of a file that the script could have written to; a torn line is none."""
    descriptor = open_below(folder, [_FOLDER, name])
    if descriptor is None:
        return
    with open(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(descriptor).st_size - _READ_BYTES))
        lines = file.read(_READ_BYTES).splitlines()
    for line in lines:
        with suppress(ValueError, TypeError, RecursionError):
            save = _Save(**json.loads(line))
            texts, numbers = (save.library, save.path, save.last_file), (save.training, save.step, save.ranks)
            if all(type(each) is str for each in texts) and all(type(each) is int for each in numbers):
                yield save


def _is_complete(save: _Save, by_rank: dict[int, dict[str, _Save]], path: Path) -> bool:
    others = (by_rank.get(rank, {}).get(save.path) for rank in range(1, min(save.ranks, 10_000)))
    if not all(other is not None and other.is_over for other in others):
        return False
    return save.is_over or (bool(save.last_file) and _is_json(path / save.last_file))


def _is_json(file: Path) -> bool:
    descriptor = open_regular(file)
    if descriptor is None:
        return False
    with open(descriptor, "rb") as stream:
        text = stream.read(_JSON_BYTES)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _place(job_folder: Path, attempts: list[int], attempt: int, name: str) -> Path | None:
    """Return where a recorded path is now; None if it is nowhere any more."""
    places = [job_folder / f"attempt-{attempt}" / name]
    if name.startswith(f"{_CHECKPOINTS}/"):
        places = [job_folder / f"attempt-{number}" / name for number in reversed(attempts) if number >= attempt]
    with suppress(OSError, ValueError):
        return next((place for place in places if place.exists()), None)
    return None
