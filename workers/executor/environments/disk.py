"""Space that folders take on their disk."""

import os
from pathlib import Path
from typing import Final

__all__ = ["size_on_disk"]

#: Bytes of a block as `stat` counts them.
_BLOCK: Final = 512


def size_on_disk(folder: Path) -> int:
    """Return the bytes of all files below a folder; a file with several names counts once. Files may come and go."""
    seen, size, folders = set[tuple[int, int]](), 0, [folder]
    while folders:
        try:
            entries = [*os.scandir(folders.pop())]
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            if found.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                if (found.st_dev, found.st_ino) in seen:
                    continue
                seen.add((found.st_dev, found.st_ino))
            size += found.st_blocks * _BLOCK
    return size
