"""Opens files of folders that scripts own, where a link must not lead us elsewhere nor a pipe keep us waiting."""

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

__all__ = ["open_below", "open_regular"]


def open_regular(path: str | Path, folder: int | None = None) -> int | None:
    """Return the descriptor of a file to read, below an open folder; None unless a regular file is there.

    The script owns its folder: a link in it must not lead us elsewhere, nor a pipe keep us waiting.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except (OSError, ValueError):  # a link, gone by now, or no name
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def open_below(top: Path, parts: Sequence[str]) -> int | None:
    """Return the descriptor of a regular file, opened folder by folder, so that none can be a link when it is passed.

    To look first and to open by the path would leave the script time to put a link there in between.
    """
    with ExitStack() as opened:
        folder: int | None = None
        part: Path | str
        try:
            for part in (str(top), *parts[:-1]):
                folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                opened.callback(os.close, folder)
        except (OSError, ValueError):
            return None
        return open_regular(parts[-1], folder)
