"""Folders that users name or upload: where they may be, and what is in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import field_error

__all__ = ["HASHED_BYTES", "FolderFacts", "folder_facts", "regular_files", "resolve_under"]

#: More than this is not read at registration: it would keep the request waiting for minutes.
HASHED_BYTES = 2 * 1024**3
_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class FolderFacts:
    file_count: int
    size_bytes: int
    #: sha256 over the sorted names, sizes and contents; empty for more than `HASHED_BYTES`.
    digest: str


def resolve_under(text: str, roots: Sequence[Path], *, field: str = "path") -> Path:
    """The real path, which must lie below one of the roots; a relative one is taken from the first root."""
    try:
        path = Path(os.path.realpath(roots[0] / text))
        # Judged before anybody looks whether it exists: what lies elsewhere is nobody's business.
        allowed = any(_is_below(path, root) for root in roots)
        exists = allowed and path.exists()
    except (OSError, ValueError):
        allowed, exists = True, False
    if not allowed:
        places = " or ".join(str(root) for root in roots)
        raise field_error(field, f"The path is outside the allowed folders: put it below {places}.")
    if not exists:
        raise field_error(field, "There is nothing at this path: check the spelling.")
    return path


def regular_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name relative to the folder, file), sorted by name. Links and devices are left out; a file is its own folder."""
    if folder.is_file():
        yield folder.name, folder
        return
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                found.append((file.relative_to(folder).as_posix(), file))
    yield from sorted(found)


def folder_facts(folder: Path) -> FolderFacts:
    files = [(name, file, file.stat().st_size) for name, file in regular_files(folder)]
    size_bytes = sum(size for _, _, size in files)
    if size_bytes > HASHED_BYTES:
        return FolderFacts(len(files), size_bytes, "")
    digest = hashlib.sha256()
    for name, file, size in files:
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return FolderFacts(len(files), size_bytes, digest.hexdigest())


def _is_below(path: Path, root: Path) -> bool:
    real = os.path.realpath(root)
    return os.path.commonpath([path, real]) == real and str(path) != real
