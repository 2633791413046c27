"""Lists folders of the server for people who pick one: nothing outside of the allowed roots, and never a whole disk."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import field_error

__all__ = ["PAGE_SIZE", "Entry", "Listing", "listing"]

PAGE_SIZE = 200
#: Tidepool's own: what is in there is registered already.
_OWN = ("uploads", "sets")


@dataclass(frozen=True)
class Entry:
    name: str
    path: str
    is_folder: bool
    #: Of files.
    size_bytes: int | None

    @property
    def key(self) -> str:
        """By which entries are ordered: folders first, then by name."""
        return f"{'0' if self.is_folder else '1'}{self.name}"


@dataclass(frozen=True)
class Listing:
    #: "" where it lists the roots themselves.
    path: str
    #: (name, path) from a root down to here.
    trail: list[tuple[str, str]]
    #: Roots cannot be picked, only what is below them.
    is_root: bool
    entries: list[Entry]
    #: Give it as `after` for the next page; "" at the end.
    next: str


def listing(path: str, roots: Sequence[Path], *, after: str = "", page_size: int = PAGE_SIZE) -> Listing:
    """List a folder; without a path the root, or the roots where there are several.

    Links are shown where they stay below the roots; names that begin with a dot, or that are no text, are not.
    """
    real_roots = [Path(os.path.realpath(root)) for root in roots]
    if not path and len(roots) > 1:
        entries = [Entry(root.name, str(root), True, None) for root in real_roots]
        return Listing("", [], True, entries, "")
    folder = _folder(path, roots, real_roots)
    page = heapq.nsmallest(page_size + 1, _entries(folder, real_roots, after), key=lambda entry: entry.key)
    more = page[page_size - 1].key if len(page) > page_size else ""
    return Listing(str(folder), _trail(folder, real_roots), folder in real_roots, page[:page_size], more)


def _folder(path: str, roots: Sequence[Path], real_roots: Sequence[Path]) -> Path:
    try:
        folder = Path(os.path.realpath(roots[0] / path))
        allowed = _is_inside(folder, real_roots)
        is_folder = allowed and folder.is_dir()
    except (OSError, ValueError):
        allowed, is_folder = True, False
    if not allowed:
        places = " or ".join(str(root) for root in roots)
        raise field_error("path", f"This is outside the allowed folders: look below {places}.")
    if not is_folder:
        raise field_error("path", "There is no such folder: it may have been moved. Go back and look again.")
    return folder


def _entries(folder: Path, real_roots: Sequence[Path], after: str) -> Iterator[Entry]:
    hidden = _OWN if folder == real_roots[0] else ()
    try:
        with os.scandir(folder) as found:
            for raw in found:
                if raw.name.startswith(".") or raw.name in hidden or not raw.name.isprintable():
                    continue
                entry = _entry(raw, real_roots)
                if entry is not None and entry.key > after:
                    yield entry
    except OSError as error:
        why = error.strerror or str(error)
        raise field_error("path", f"This folder cannot be read ({why}): ask for access to it.") from error


def _entry(raw: os.DirEntry[str], real_roots: Sequence[Path]) -> Entry | None:
    if raw.is_symlink() and not _is_inside(Path(os.path.realpath(raw.path)), real_roots):
        return None
    if raw.is_dir():
        return Entry(raw.name, raw.path, True, None)
    return Entry(raw.name, raw.path, False, raw.stat().st_size) if raw.is_file() else None


def _trail(folder: Path, real_roots: Sequence[Path]) -> list[tuple[str, str]]:
    root = max((root for root in real_roots if folder.is_relative_to(root)), key=lambda root: len(root.parts))
    above = [step for step in [folder, *folder.parents] if step.is_relative_to(root)]
    return [(step.name, str(step)) for step in reversed(above)]


def _is_inside(path: Path, real_roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in real_roots)
