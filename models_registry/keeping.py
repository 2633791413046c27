"""Takes over a model's files: a copy that nobody edits, with its digest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from core.errors import field_error
from core.folders import HASHED_BYTES, FolderFacts, folder_facts
from core.sources import Source, new_upload_folder, obtained
from models_registry.code import checked_entry_point, inspect_code
from models_registry.models import ModelTemplate, RegisteredModelVersion

__all__ = ["Code", "drop_unused", "kept_code"]

_IGNORED = shutil.ignore_patterns("__pycache__", ".git", "*.pyc")


@dataclass(frozen=True)
class Code:
    """The fields that templates and versions share, but for the framework."""

    path: str
    copy: str
    entry_point: str
    digest: str
    compat: list[str]
    folder_arguments: list[str]


@contextmanager
def kept_code(
    source: Source | ModelTemplate | RegisteredModelVersion, entry_point: str, *, compat: list[str] | None, label: str
) -> Iterator[Code]:
    """The code, copied unless it was kept already. A new copy is removed again when the body fails.

    compat: None: told from what the code imports.
    """
    if not isinstance(source, Source):
        yield _code(Path(source.path), source.folder, source.entry_point, compat, digest=source.digest)
        return
    with obtained(source, settings.TIDEPOOL_MODEL_ROOTS, label=label, single=(".py",)) as folder:
        script = _checked(folder, entry_point)
        if source.upload is not None:
            yield _code(folder, folder, script, compat)
            return
        with _copied(folder, label) as copy:
            yield _code(folder, copy, script, compat)


def drop_unused(folders: list[Path]) -> None:
    """Remove our copies that no row names any more. To be called once the rows are gone for good."""
    ours = settings.TIDEPOOL_MODEL_ROOTS[0] / "uploads"
    for folder in folders:
        if folder.parent == ours and not _is_named(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_named(folder: Path) -> bool:
    kept = {"copy": str(folder)}
    return RegisteredModelVersion.objects.filter(**kept).exists() or ModelTemplate.objects.filter(**kept).exists()


def _checked(folder: Path, entry_point: str) -> str:
    if not folder.is_dir():
        raise field_error("path", "The path is a file: name the folder that holds the model's code.")
    script = checked_entry_point(folder, entry_point)
    facts = _facts(folder)
    if not facts.digest:
        raise field_error(
            "path",
            f"The folder holds {facts.size_bytes / 1024**3:.1f} GiB: a model is its code, at most "
            f"{HASHED_BYTES // 1024**3} GiB. Put data and weights elsewhere.",
        )
    return script


def _facts(folder: Path) -> FolderFacts:
    try:
        return folder_facts(folder)
    except OSError as error:
        raise field_error("path", f"A file in it cannot be read ({error.strerror}): make it readable.") from error


@contextmanager
def _copied(folder: Path, label: str) -> Iterator[Path]:
    copy = new_upload_folder(settings.TIDEPOOL_MODEL_ROOTS, label)
    try:
        # Links stay links: copying what they lead to could copy anything.
        shutil.copytree(folder, copy, symlinks=True, ignore=_IGNORED)
        yield copy
    except BaseException as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, OSError):
            raise field_error("path", f"The files cannot be copied ({error.strerror or error}).") from error
        raise


def _code(path: Path, folder: Path, entry_point: str, compat: list[str] | None, *, digest: str = "") -> Code:
    facts = inspect_code(folder, "")
    return Code(
        path=str(path),
        copy=str(folder),
        entry_point=entry_point,
        digest=digest or folder_facts(folder).digest,
        compat=facts.compat if compat is None else sorted(set(compat)),
        folder_arguments=facts.folder_arguments,
    )
