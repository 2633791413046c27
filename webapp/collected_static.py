"""Check that static files were collected from the present content of the folder `static/`.

Collected files have their hash in their names, so that browsers keep them for good, and are compressed already. Until
they are collected, or after the folder has changed, they are served from the folder as they lie.
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
    """Call it after the last file has been written."""
    (root / _NOTE).write_text(_fingerprint(source))


def _fingerprint(folder: Path) -> str:
    """Fingerprint of names, sizes and times of change, also of the bundler: computed at the start of each process."""
    seen = hashlib.sha256()
    for path in [*sorted(folder.rglob("*")), Path(bundles.__file__)]:
        if path.is_file():
            status = path.stat()
            seen.update(f"{os.path.relpath(path, folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return seen.hexdigest()
