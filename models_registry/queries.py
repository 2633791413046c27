"""Queries of templates and models, their files, and the differences between versions."""

import difflib
import filecmp
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from django.db.models import Count, QuerySet

from core.folders import regular_files
from core.registered_rows import with_latest
from core.roles import Asking
from core.text import by_reference
from core.visibility import readable
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion

__all__ = [
    "MAX_FILES",
    "CodeFile",
    "Shown",
    "changed_files",
    "changed_values",
    "code_files",
    "find_model",
    "find_template",
    "find_version",
    "has_changed",
    "line_changes",
    "models",
    "shown_file",
    "templates",
    "text_of",
    "versions",
]

_SHOWN_BYTES = 256 * 1024
MAX_FILES = 500
_MAX_LINES = 2000
#: Limit on difflib's worst-case steps for a comparison, about a second. Steps grow with the cube of the lines.
_MAX_STEPS = 300_000_000
_CONTEXT = 3
_KINDS: dict[str, Literal["added", "removed", "same", "place"]] = {
    "+": "added",
    "-": "removed",
    " ": "same",
    "@": "place",
}


@dataclass(frozen=True)
class CodeFile:
    name: str
    size_bytes: int


@dataclass(frozen=True)
class Shown:
    """A file with the beginning of its text; `text` is None for a binary file."""

    name: str
    text: str | None
    size_bytes: int

    @property
    def cut(self) -> bool:
        return self.size_bytes > _SHOWN_BYTES


def models(user: Asking) -> QuerySet[RegisteredModel]:
    """Return the models that the user may read, with owners; `latest` is a list with the newest version."""
    versions = RegisteredModelVersion.objects.select_related("template")
    return with_latest(readable(RegisteredModel.objects.all(), user), versions, "model")


def templates(user: Asking) -> QuerySet[ModelTemplate]:
    """Return the templates that the user may read, with owners; `used` is the number of models made from each."""
    rows = readable(ModelTemplate.objects.all(), user).select_related("owner")
    return rows.annotate(used=Count("model_versions__model", distinct=True))


def find_model(user: Asking, reference: int | str) -> RegisteredModel | None:
    """Return the model with this id or name, or None."""
    return by_reference(models(user), reference)


def find_template(user: Asking, reference: int | str) -> ModelTemplate | None:
    """Return the template with this id or name, or None."""
    return by_reference(templates(user), reference)


def versions(model: RegisteredModel) -> QuerySet[RegisteredModelVersion]:
    return model.versions.select_related("template").order_by("-number")


def find_version(model: RegisteredModel, number: int) -> RegisteredModelVersion | None:
    return versions(model).filter(number=number).first()


def code_files(folder: Path) -> list[CodeFile]:
    """Return at most 500 regular files, by name; none if the folder is gone."""
    return [CodeFile(name, file.stat().st_size) for name, file in islice(regular_files(folder), MAX_FILES)]


def shown_file(folder: Path, name: str) -> Shown | None:
    """Return one file of a folder by its relative name; None if there is no such regular file."""
    for found, file in regular_files(folder):
        if found == name:
            return Shown(name, _read_text(file), file.stat().st_size)
    return None


def _read_text(file: Path) -> str | None:
    """Return the beginning of a text file, or None for a binary file."""
    try:
        with file.open("rb") as stream:
            return text_of(stream)
    except OSError:
        return None


def text_of(stream: IO[bytes]) -> str | None:
    """Return the beginning of an open text file, or None for a binary file."""
    content = stream.read(_SHOWN_BYTES)
    return None if b"\0" in content else content.decode("utf-8", "replace")


def has_changed(template: ModelTemplate) -> bool:
    """Return whether the files at the template's path differ from the copy."""
    source = Path(template.path)
    if source == template.folder or not source.is_dir():
        return False
    now, then = _code(source), _code(template.folder)
    # A copy has the original times, so most files need not be read.
    return now.keys() != then.keys() or not all(filecmp.cmp(now[name], then[name]) for name in now)


def _code(folder: Path) -> dict[str, Path]:
    ignored = {"__pycache__", ".git"}
    return {
        name: file
        for name, file in regular_files(folder)
        if not name.endswith(".pyc") and ignored.isdisjoint(Path(name).parts)
    }


@dataclass(frozen=True)
class ValueChange:
    name: str
    #: Former value; None: it was not set.
    old: Any
    new: Any


@dataclass(frozen=True)
class DiffLine:
    kind: Annotated[
        Literal["added", "removed", "same", "place"], "added, removed, same, or place: where the next ones stand."
    ]
    text: str


@dataclass(frozen=True)
class FileChange:
    name: str
    kind: Annotated[Literal["added", "removed", "changed"], "added, removed or changed."]
    #: Changed lines; empty for binary files and if comparing takes too long.
    lines: list[DiffLine] = field(default_factory=list)


def changed_values(old: RegisteredModelVersion, new: RegisteredModelVersion) -> list[ValueChange]:
    """Return changes of engine, dataset, entry point and so on, then of settings and parameters by name."""
    before, after = _facts(old), _facts(new)
    return [
        ValueChange(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def changed_files(old: Path, new: Path) -> list[FileChange]:
    if old == new:
        return []
    before, after = dict(regular_files(old)), dict(regular_files(new))
    changes, steps = [], 0
    for name in sorted({*before, *after}):
        texts = _differing(before.get(name), after.get(name))
        if texts is None:
            continue
        old_text, new_text = texts
        lines = []
        if old_text is not None and new_text is not None:
            more = _steps(old_text.splitlines(), new_text.splitlines())
            if steps + more <= _MAX_STEPS:
                steps, lines = steps + more, line_changes(old_text, new_text)
        kind: Any = "added" if name not in before else "removed" if name not in after else "changed"
        changes.append(FileChange(name, kind, lines))
    return changes


def _steps(old: list[str], new: list[str]) -> int:
    """Return difflib's worst-case steps: for each matched line, it visits all lines and all equal lines.

    difflib ignores lines that occur often: see `SequenceMatcher` on automatic junk.
    """
    there = Counter(new)
    popular = len(new) // 100 + 1 if len(new) >= 200 else len(new)
    equal = sum(count * there[line] for line, count in Counter(old).items() if there[line] <= popular)
    return min(len(old), len(new)) * (len(old) + equal)


def line_changes(old: str, new: str) -> list[DiffLine]:
    """Return a diff as of `diff -u`, without its head; at most 2000 lines."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=_CONTEXT, lineterm="")
    shown = islice(lines, 2, 2 + _MAX_LINES)  # skips the head, which names the files
    return [DiffLine(_KINDS[line[:1]], line if line.startswith("@") else line[1:]) for line in shown]


def _differing(old: Path | None, new: Path | None) -> tuple[str | None, str | None] | None:
    """Return the texts of files that differ: "" for a missing file, None for a binary one. None if they are equal."""
    if old is not None and new is not None and filecmp.cmp(old, new, shallow=False):
        return None
    before, after = (_read_text(file) if file is not None else "" for file in (old, new))
    return before, after


def _facts(version: RegisteredModelVersion) -> dict[str, Any]:
    return {
        "Template": version.template.name if version.template else None,
        "Entry point": version.entry_point,
        "Training engine": version.get_engine_display(),
        "Default dataset": version.default_dataset or None,
        **{f"Setting {name}": value for name, value in version.settings.items()},
        **{f"Parameter {name}": value for name, value in version.parameters.items()},
    }
