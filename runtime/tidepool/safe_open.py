"""Opens files and removes folders where a script may put a link to lead us elsewhere, or a pipe to keep us waiting."""

import errno
import os
import shutil
import stat
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

__all__ = ["ForeignFileError", "open_below", "open_ours", "open_regular", "remove_below", "times_below"]

#: Number of entries of a folder that are looked at: there may be millions.
_MOST_ENTRIES = 10_000

#: Errors of what a script can put in place of a file of ours, or do to it.
_BY_SCRIPTS = {
    *(errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENXIO),
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG),
}


class ForeignFileError(OSError):
    """A script has put something else in place of a file of ours, or closed it to us."""


def open_ours(path: Path, flags: int, *, parts: int = 2) -> int:
    """Return the descriptor of a file that we write in a folder that scripts own. With O_CREAT, make missing folders.

    parts: number of its path's last parts in the scripts' hands; none of them may be a link. Raises OSError.
    """
    try:
        if flags & os.O_CREAT:
            path.parents[parts - 1].mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            makes = bool(flags & os.O_CREAT)
            folder = _last_folder(path.parents[parts - 1], path.parts[-parts:-1], opened, makes=makes)
            descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _BY_SCRIPTS:
            raise ForeignFileError(error.errno, error.strerror, str(path)) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise ForeignFileError(errno.EEXIST, "not a regular file", str(path))


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
        try:
            _require_within(parts)
            folder = _last_folder(top, parts[:-1], opened)
        except (OSError, ValueError):
            return None
        return open_regular(parts[-1], folder)


def remove_below(top: Path, parts: Sequence[str]) -> None:
    """Remove a folder and all that it contains, if it is there, and neither it nor a folder on the way is a link."""
    with ExitStack() as opened:
        try:
            _require_within(parts)
            folder = _last_folder(top, parts[:-1], opened)
        except (OSError, ValueError):
            return
        try:
            shutil.rmtree(parts[-1], ignore_errors=True, dir_fd=folder)
            if _open_up(parts[-1], folder):
                for _, folders, _, descriptor in os.fwalk(parts[-1], dir_fd=folder):
                    for name in folders:
                        _open_up(name, descriptor)
                shutil.rmtree(parts[-1], ignore_errors=True, dir_fd=folder)
        except RecursionError:  # nested more deeply than Python's own functions go
            place = f"/proc/self/fd/{folder}/{parts[-1]}"
            subprocess.run(["/bin/rm", "-rf", "--", place], pass_fds=[folder], capture_output=True, check=False)


def _open_up(name: str, folder: int) -> bool:
    """Let its owner list and empty a folder in another, which scripts, and caches like Go's, may have closed. Return
    whether it is there and no link."""
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=folder)
    except OSError:
        return False
    with suppress(OSError):  # another user's
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
    os.close(descriptor)
    return True


def times_below(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the names and Unix times of change of what is in a folder and below, outer ones first, without links."""
    waiting, left = deque([] if folder.is_symlink() else [str(folder)]), _MOST_ENTRIES
    while waiting and left:
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:  # gone meanwhile, or too deep
            for entry in islice(entries, left):
                left -= 1
                with suppress(OSError):
                    at = entry.stat(follow_symlinks=False).st_mtime
                    yield entry.name, at
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)


def _last_folder(top: Path, parts: Sequence[str], opened: ExitStack, *, makes: bool = False) -> int:
    """Return the descriptor of a folder below another, none of which is a link; `opened` closes it.

    makes: whether to make missing ones.

    Raises OSError, and ValueError if a part leads out of the folder that it is in.
    """
    _require_within(parts)
    folder: int | None = None
    for part in (str(top), *parts):
        if makes and folder is not None:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
        folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        opened.callback(os.close, folder)
    assert folder is not None
    return folder


def _require_within(parts: Sequence[str]) -> None:
    """Raise ValueError if a part leads out of the folder that it is in: a script may have chosen its name."""
    if any(part == ".." or "/" in part for part in parts):
        raise ValueError("a path leads out of its folder")
