"""Reads templates and models for pages, the API and the jobs app."""

from __future__ import annotations

import filecmp
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from django.db.models import Count, OuterRef, Prefetch, QuerySet, Subquery

from core.folders import regular_files
from core.references import by_reference
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion

__all__ = [
    "MAX_FILES",
    "CodeFile",
    "Shown",
    "code_files",
    "find_model",
    "find_template",
    "find_version",
    "has_changed",
    "models",
    "read_text",
    "shown_file",
    "templates",
    "text_of",
    "versions",
]

_SHOWN_BYTES = 256 * 1024
MAX_FILES = 500


@dataclass(frozen=True)
class CodeFile:
    name: str
    size_bytes: int


@dataclass(frozen=True)
class Shown:
    """A file's text, maybe only its beginning; `text` is None where it is no text."""

    name: str
    text: str | None
    size_bytes: int

    @property
    def cut(self) -> bool:
        return self.size_bytes > _SHOWN_BYTES


def models() -> QuerySet[RegisteredModel]:
    """All models with their owners; `latest` holds the newest version in a list of one."""
    newest = RegisteredModelVersion.objects.filter(model=OuterRef("model")).order_by("-number")
    latest = RegisteredModelVersion.objects.filter(pk=Subquery(newest.values("pk")[:1])).select_related("template")
    return RegisteredModel.objects.select_related("owner").prefetch_related(
        Prefetch("versions", latest, to_attr="latest")
    )


def templates() -> QuerySet[ModelTemplate]:
    """All templates with their owners; `used` is how many models were made of each."""
    return ModelTemplate.objects.select_related("owner").annotate(used=Count("model_versions__model", distinct=True))


def find_model(reference: int | str) -> RegisteredModel | None:
    """By id or name."""
    return by_reference(models(), reference)


def find_template(reference: int | str) -> ModelTemplate | None:
    """By id or name."""
    return by_reference(templates(), reference)


def versions(model: RegisteredModel) -> QuerySet[RegisteredModelVersion]:
    return model.versions.select_related("template").order_by("-number")


def find_version(model: RegisteredModel, number: int) -> RegisteredModelVersion | None:
    return versions(model).filter(number=number).first()


def code_files(folder: Path) -> list[CodeFile]:
    """The regular files by name, at most 500; none where the folder is gone."""
    return [CodeFile(name, file.stat().st_size) for name, file in islice(regular_files(folder), MAX_FILES)]


def shown_file(folder: Path, name: str) -> Shown | None:
    """One file of a folder by its relative name; None if there is no such regular file."""
    for found, file in regular_files(folder):
        if found == name:
            return Shown(name, read_text(file), file.stat().st_size)
    return None


def read_text(file: Path) -> str | None:
    """The beginning of a text file, or None for what is no text."""
    try:
        with file.open("rb") as stream:
            return text_of(stream)
    except OSError:
        return None


def text_of(stream: IO[bytes]) -> str | None:
    """As `read_text`, of a file that is open."""
    content = stream.read(_SHOWN_BYTES)
    return None if b"\0" in content else content.decode("utf-8", "replace")


def has_changed(template: ModelTemplate) -> bool:
    """Whether the files at the template's path differ from those that were taken over."""
    source = Path(template.path)
    if source == template.folder or not source.is_dir():
        return False
    now, then = _code(source), _code(template.folder)
    # A copy has the times of what was copied, so that most files need not be read.
    return now.keys() != then.keys() or not all(filecmp.cmp(now[name], then[name]) for name in now)


def _code(folder: Path) -> dict[str, Path]:
    ignored = {"__pycache__", ".git"}
    return {
        name: file
        for name, file in regular_files(folder)
        if not name.endswith(".pyc") and ignored.isdisjoint(Path(name).parts)
    }
