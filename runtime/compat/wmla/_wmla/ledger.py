"""Ledger of the driver's logs, so that the next driver goes on from there.

The file beside the metrics holds up to which step everything has been logged, how long the driver's files were then,
and what its loggers and callbacks remembered: those of their attributes that are numbers, texts, or lists and dicts of
them. It is written now and then. A new driver cuts the files to these lengths, gives its own loggers these attributes,
and logs the steps since then again; so no line is lost or there twice, whatever became of the one before.
"""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Entry", "Ledger", "bring_files", "records_after"]

#: Between two entries, unless one is due for its own sake.
_SECONDS = 0.25
_BLOCK = 65536


@dataclass
class Entry:
    """Facts of one moment. folder: the attempt's. files: length of each file of the driver's, by name."""

    step: int
    folder: str
    began_at: float
    files: dict[str, int] = field(default_factory=dict)
    remembered: list[dict[str, Any]] = field(default_factory=list)


class Ledger:
    """The file in the folder of an attempt. owners: the loggers and callbacks, in an order that is always the same."""

    def __init__(self, folder: Path, driver_folder: Path, owners: Sequence[Any]) -> None:
        self._path = folder / "driver.json"
        self._folder = folder
        self._driver_folder = driver_folder
        self._owners = owners
        self._written_at = 0.0
        #: The newest entry, as text.
        self.text = ""

    def read(self) -> Entry | None:
        """Return the newest entry of this attempt, whoever wrote it."""
        if not self._path.exists():
            return None
        self.text = self._path.read_text()
        return Entry(**json.loads(self.text))

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written_at >= _SECONDS

    def write(self, step: int, began_at: float) -> None:
        files = {name: path.stat().st_size for name, path in _files(self._driver_folder)}
        remembered = [_plain_attributes(owner) for owner in self._owners]
        self.text = json.dumps(asdict(Entry(step, str(self._folder), began_at, files, remembered)))
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(self.text)
        unfinished.rename(self._path)
        self._written_at = time.monotonic()

    def restore(self, entry: Entry) -> None:
        """Put the driver's files, and what its loggers remember, back to that moment."""
        for name, path in _files(self._driver_folder):
            if path.stat().st_size > entry.files.get(name, 0):
                os.truncate(path, entry.files.get(name, 0))
        for owner, attributes in zip(self._owners, entry.remembered, strict=False):
            for name, value in attributes.items():
                setattr(owner, name, value)


def bring_files(entry: Entry, source: Path, target: Path) -> None:
    """Copy the driver's files of an earlier attempt, as long as they were at that moment."""
    for name, size in entry.files.items():
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
            os.truncate(target / name, size)


def records_after(metrics: Path, step: int) -> list[dict[str, Any]]:
    """The records of later steps, oldest first, read from the end of `metrics.jsonl`: at first a little, then more."""
    size = metrics.stat().st_size if metrics.exists() else 0
    wanted = _BLOCK
    while True:
        start = max(0, size - wanted)
        records = [json.loads(line) for line in _whole_lines(metrics, start)] if size else []
        if not start or (records and records[0]["step"] <= step):
            return [record for record in records if record["step"] > step]
        wanted *= 4


def _whole_lines(path: Path, start: int) -> list[bytes]:
    """Return the lines behind byte `start`. What its writer had begun when it died is no line."""
    with path.open("rb") as file:
        file.seek(start)
        text = file.read()
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    return lines[1:] if start else lines


def _files(folder: Path) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*")) if path.is_file()]


def _plain_attributes(owner: Any) -> dict[str, Any]:
    attributes = vars(owner) if hasattr(owner, "__dict__") else {}
    return {name: value for name, value in attributes.items() if name not in ("model", "params") and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
