"""Differences between two versions of a model: pure functions, and one that reads two folders."""

from __future__ import annotations

import difflib
import filecmp
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from core.folders import regular_files
from models_registry.models import RegisteredModelVersion
from models_registry.queries import read_text

__all__ = ["DiffLine", "FileChange", "ValueChange", "changed_files", "changed_values", "line_changes"]

_MAX_LINES = 2000
_CONTEXT = 3
_KINDS: dict[str, Literal["added", "removed", "same", "place"]] = {
    "+": "added",
    "-": "removed",
    " ": "same",
    "@": "place",
}


@dataclass(frozen=True)
class ValueChange:
    name: str
    #: None: it was not set.
    old: Any
    new: Any


@dataclass(frozen=True)
class DiffLine:
    kind: Literal["added", "removed", "same", "place"]
    text: str


@dataclass(frozen=True)
class FileChange:
    name: str
    kind: Literal["added", "removed", "changed"]
    #: Empty for what is no text.
    lines: list[DiffLine] = field(default_factory=list)


def changed_values(old: RegisteredModelVersion, new: RegisteredModelVersion) -> list[ValueChange]:
    """Engine, dataset, entry point and so on, then settings and parameters by name."""
    before, after = _values(old), _values(new)
    names = [*before, *(name for name in after if name not in before)]
    return [
        ValueChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def changed_files(old: Path, new: Path) -> list[FileChange]:
    if old == new:
        return []
    before, after = dict(regular_files(old)), dict(regular_files(new))
    names = sorted({*before, *after})
    return [change for name in names if (change := _changed(name, before, after)) is not None]


def line_changes(old: str, new: str) -> list[DiffLine]:
    """As `diff -u` has them, without its head; at most 2000 lines."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=_CONTEXT, lineterm="")
    shown = islice(lines, 2, 2 + _MAX_LINES)  # after the head, which names the files
    return [DiffLine(_KINDS[line[:1]], line if line.startswith("@") else line[1:]) for line in shown]


def _changed(name: str, before: Mapping[str, Path], after: Mapping[str, Path]) -> FileChange | None:
    old, new = before.get(name), after.get(name)
    if old is not None and new is not None and filecmp.cmp(old, new, shallow=False):
        return None
    texts = [read_text(file) if file is not None else "" for file in (old, new)]
    lines = [] if texts[0] is None or texts[1] is None else line_changes(texts[0], texts[1])
    return FileChange(name, "added" if old is None else "removed" if new is None else "changed", lines)


def _values(version: RegisteredModelVersion) -> dict[str, Any]:
    return {
        "Template": version.template.name if version.template else None,
        "Entry point": version.entry_point,
        "Training engine": version.get_engine_display(),
        "Usual dataset": version.default_dataset or None,
        **{f"Setting {name}": value for name, value in version.settings.items()},
        **{f"Parameter {name}": value for name, value in version.parameters.items()},
    }
