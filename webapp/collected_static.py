"""Check that static files were collected from the present content of the folder `static/`.

Collected files are compressed and have a hash in their names, so that browsers cache them permanently. Before the
collection, or after a change of the folder, files are served from the folder.
"""

import hashlib
import os
from pathlib import Path

from webapp import bundles

__all__ = ["is_collected", "note_collected"]

_NOTE = "collected-from"


def is_collected(root: Path, source: Path) -> bool:
    note = root / _NOTE
    return note.is_file() and note.read_text() == _fingerprint(source)


def note_collected(root: Path, source: Path) -> None:
    """Record the fingerprint; call after the last file has been written."""
    (root / _NOTE).write_text(_fingerprint(source))


def _fingerprint(folder: Path) -> str:
    """Return a fingerprint of names, sizes and modification times, including the bundler's. Computed when a process
    starts."""
    seen = hashlib.sha256()
    for path in [*sorted(folder.rglob("*")), Path(bundles.__file__)]:
        if path.is_file():
            status = path.stat()
            seen.update(f"{os.path.relpath(path, folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return seen.hexdigest()
