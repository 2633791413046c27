"""A child's log file, kept below a size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

__all__ = ["LIMIT_BYTES", "open_log", "rotate"]

LIMIT_BYTES = 10 * 1024 * 1024


def open_log(path: Path) -> BinaryIO:
    """Appending, so that a child that writes on after a rotation writes at the new end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)


def rotate(path: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Move a log that has grown past the limit to `<name>.1`, in place of the one before.

    The child keeps its descriptor, so the content is copied and the file emptied: a line written between the two is
    lost, which is the price for needing no process that all output passes through.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= limit_bytes:
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True
