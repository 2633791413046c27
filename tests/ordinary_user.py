"""A folder whose owner is not root, for whom closed folders are closed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ordinary_folder"]

_NOBODY = 65_534


@contextmanager
def ordinary_folder() -> Iterator[Path]:
    """Yield an empty folder, and go on as its owner: as the tests' own user unless that is root."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # which everybody may pass, other than pytest's folders
    user = os.geteuid()
    if user == 0:
        os.chown(folder, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)
