"""Folders that users name, upload or pick: allowed locations and contents."""

import hashlib
import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from core.errors import field_error

__all__ = [
    "HASHED_BYTES",
    "PAGE_SIZE",
    "FolderFacts",
    "Listing",
    "empty_folders",
    "folder_facts",
    "is_own",
    "listing",
    "regular_files",
    "resolve_under",
]

#: Largest folder in bytes that is read at registration; more would take minutes in a request.
HASHED_BYTES = 2 * 1024**3
_CHUNK = 1024 * 1024
#: Number of entries on a page of a listing.
PAGE_SIZE = 200
#: Tidepool's own folders below the first root, whose contents are registered already.
_OWN = ("uploads", "sets")


@dataclass(frozen=True)
class FolderFacts:
    file_count: int
    size_bytes: int
    #: sha256 over the sorted names, sizes and contents, and the empty folders; empty for more than `HASHED_BYTES`.
    digest: str


@dataclass(frozen=True)
class Entry:
    name: str
    path: str
    is_folder: bool
    size_bytes: Annotated[int | None, "Of files."]

    @property
    def key(self) -> str:
        """Sort key of entries: folders first, then by name."""
        return f"{'0' if self.is_folder else '1'}{self.name}"


@dataclass(frozen=True)
class Listing:
    path: Annotated[str, "Empty where it lists the roots."]
    #: Folders from a root down to this one, as (name, path).
    trail: list[tuple[str, str]]
    is_root: Annotated[bool, "Roots cannot be registered: choose a file or folder below them."]
    entries: list[Entry]
    next: Annotated[str, "Give it as `after` for the next page; empty at the end."]


def resolve_under(text: str, roots: Sequence[Path], *, field: str = "path") -> Path:
    """Return the real path, which must be below a root; a relative path starts at the first. Raises UserError."""
    allowed, path = _look_up(text, roots, below=True)
    if not allowed:
        sentence = f"The path is outside the allowed folders: choose a path below {_named(roots)}."
        raise field_error(field, sentence, code="outside")
    if path is None:
        raise field_error(field, "The path does not exist: check the spelling.", code="missing")
    return path


def is_own(text: str, roots: Sequence[Path]) -> bool:
    """Return whether the path is inside one of Tidepool's own folders below the first root."""
    try:
        path = Path(os.path.realpath(roots[0] / text))
    except (OSError, ValueError):
        return False
    return any(path.is_relative_to(own) for own in _own(roots))


def regular_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative name, file), sorted by name, without links and devices. A file yields itself."""
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


def empty_folders(folder: Path) -> list[str]:
    """Return the relative names of the folders that contain nothing, sorted."""
    found = [Path(parent) for parent, folders, names in os.walk(folder) if not folders and not names]
    return sorted(each.relative_to(folder).as_posix() for each in found if each != folder)


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
    for name in empty_folders(folder):
        digest.update(f"{name}/\0".encode("utf-8", "surrogateescape"))
    return FolderFacts(len(files), size_bytes, digest.hexdigest())


def listing(path: str, roots: Sequence[Path], *, after: str = "", page_size: int = PAGE_SIZE) -> Listing:
    """Return a folder's entries for people who pick one; without a path, the root, or the roots if there are several.

    Links are listed if they stay below the roots. Names that begin with a dot or are not printable are not listed.
    """
    real_roots = _real(roots)
    if not path and len(roots) > 1:
        entries = [Entry(root.name, str(root), True, None) for root in real_roots]
        return Listing("", [], True, entries, "")
    allowed, folder = _look_up(path, roots, below=False)
    if not allowed:
        raise field_error("path", f"The folder is outside the allowed folders: choose one below {_named(roots)}.")
    if folder is None or not folder.is_dir() or is_own(str(folder), roots):
        raise field_error("path", "The folder does not exist: it may have been moved. Go back and choose again.")
    page = heapq.nsmallest(page_size + 1, _entries(folder, real_roots, after), key=lambda entry: entry.key)
    more = page[page_size - 1].key if len(page) > page_size else ""
    return Listing(str(folder), _trail(folder, real_roots), folder in real_roots, page[:page_size], more)


def _entries(folder: Path, real_roots: Sequence[Path], after: str) -> Iterator[Entry]:
    hidden = [str(own) for own in _own(real_roots)]
    try:
        with os.scandir(folder) as found:
            for raw in found:
                if raw.name.startswith(".") or raw.path in hidden or not raw.name.isprintable():
                    continue
                entry = _entry(raw, real_roots)
                if entry is not None and entry.key > after:
                    yield entry
    except OSError as error:
        why = error.strerror or str(error)
        raise field_error("path", f"The folder cannot be read ({why}): ask for access.") from error


def _entry(raw: os.DirEntry[str], real_roots: Sequence[Path]) -> Entry | None:
    if raw.is_symlink() and not any(Path(os.path.realpath(raw.path)).is_relative_to(root) for root in real_roots):
        return None
    if raw.is_dir():
        return Entry(raw.name, raw.path, True, None)
    return Entry(raw.name, raw.path, False, raw.stat().st_size) if raw.is_file() else None


def _trail(folder: Path, real_roots: Sequence[Path]) -> list[tuple[str, str]]:
    root = max((root for root in real_roots if folder.is_relative_to(root)), key=lambda root: len(root.parts))
    above = [step for step in [folder, *folder.parents] if step.is_relative_to(root)]
    return [(step.name, str(step)) for step in reversed(above)]


def _real(roots: Sequence[Path]) -> list[Path]:
    return [Path(os.path.realpath(root)) for root in roots]


def _own(roots: Sequence[Path]) -> list[Path]:
    return _real([roots[0] / name for name in _OWN])


def _named(roots: Sequence[Path]) -> str:
    return " or ".join(str(root) for root in roots)


def _look_up(text: str, roots: Sequence[Path], *, below: bool) -> tuple[bool, Path | None]:
    """Return whether the path is allowed, and its real path if it exists.

    below: whether a root itself is not allowed.
    """
    try:
        path = Path(os.path.realpath(roots[0] / text))
        # Checked before existence, so that the error does not reveal files elsewhere.
        allowed = any(path.is_relative_to(root) and not (below and path == root) for root in _real(roots))
        return allowed, path if allowed and path.exists() else None
    except (OSError, ValueError):
        return True, None
