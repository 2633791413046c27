"""Check that static files were collected from the present content of their folders.

Collected files are compressed and have a hash in their names, so that browsers cache them permanently. Before the
collection, or after a change of a folder, files are served from the folders.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from webapp import bundles

__all__ = ["is_collected", "note_collected"]

_NOTE = "collected-from"
#: A folder, or the prefix of its files' addresses and the folder.
Source = Path | tuple[str, Path]


def is_collected(root: Path, sources: Sequence[Source]) -> bool:
    """Return whether the files in `root` were collected from `sources`, which are as in STATICFILES_DIRS."""
    note = root / _NOTE
    return note.is_file() and note.read_text() == _fingerprint(sources)


def note_collected(root: Path, sources: Sequence[Source]) -> None:
    """Record the fingerprint; call after the last file has been written."""
    (root / _NOTE).write_text(_fingerprint(sources))


def _fingerprint(sources: Sequence[Source]) -> str:
    """Return a fingerprint of names, sizes and modification times, including the bundler's. Computed when a process
    starts."""
    seen = hashlib.sha256()
    for source in sources:
        folder = source if isinstance(source, Path) else source[1]
        for path in [*sorted(folder.rglob("*")), Path(bundles.__file__)]:
            if path.is_file():
                status = path.stat()
                seen.update(f"{os.path.relpath(path, folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return seen.hexdigest()
