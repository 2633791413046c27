"""Folders of this host as environments: a virtual environment or a conda prefix that an administrator has named.

Nothing is written into them. Their contents are known by a digest of Python, of the distributions that it imports from
and of the times at which these changed. They are read again when a time differs.
"""

import hashlib
import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from packaging.version import Version
from tidepool.inherited_environment import inherited_environment

from workers.executor.environments.distributions import distributions_in
from workers.executor.environments.images import OLDEST_PYTHON

__all__ = ["Contents", "FolderError", "Folders", "changes_between", "python_of", "read_contents"]

logger = logging.getLogger(__name__)

_PROBE_SECONDS: Final = 60.0
#: Tells Python's version and the folders that it imports from.
_PROBE: Final = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path[1:]]))"
#: Endings of what tells which distributions a folder has. conda's records end with the last.
_LISTED: Final = (".dist-info", ".egg-info", ".egg-link", ".pth")
_CONDA_RECORDS: Final = "conda-meta"
#: Seconds between two looks at a folder that trainings use.
_LOOK_SECONDS: Final = 15.0
#: Highest number of changes that are named.
_MOST_CHANGES: Final = 10


class FolderError(Exception):
    """The folder cannot be used on this host; the text says why, and what to do."""


@dataclass(frozen=True)
class Contents:
    """What a folder holds."""

    folder: Path
    #: Version of its Python.
    python: str
    #: Folders that its Python imports from.
    paths: tuple[str, ...] = ()
    #: Version of each distribution, by name, and the address of those that are from no index.
    packages: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    #: Path and time of change, in ns, of the Python and of all that tells which distributions there are.
    times: tuple[tuple[str, int], ...] = ()

    @property
    def digest(self) -> str:
        parts = [self.python, sorted(self.packages.items()), sorted(self.origins.items()), self.times]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def read_contents(folder: Path, environment: Mapping[str, str]) -> Contents:
    """Return what the folder holds now. environment: of its Python. Raises FolderError."""
    python, paths = _probed(folder, environment)
    if Version(python) < OLDEST_PYTHON:
        raise FolderError(
            f"{folder} has Python {python}, and trainings need {OLDEST_PYTHON} or newer: make it anew with one"
        )
    times = _times(folder, paths)  # first: what changes from here on is noticed
    packages, origins = distributions_in(paths)
    return Contents(folder, python, tuple(paths), packages, origins, times)


def changes_between(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return what differs, such as "numpy 1.26.4 -> 2.1.0". old, new: versions of packages, by name."""
    found = [
        f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    left = len(found) - _MOST_CHANGES
    return [*found[:_MOST_CHANGES], f"{left} more"] if left > 0 else found


class Folders:
    """Contents of folders, each read again after a change. Threads may share it."""

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        """environment: of the folders' Pythons."""
        self._environment, self._clock = environment, clock
        self._guard = threading.Lock()
        self._read: dict[Path, Contents] = {}
        self._watched: dict[Path, _Watched] = {}

    def read(self, folder: Path) -> Contents:
        """Return what the folder holds now. Raises FolderError."""
        with self._guard:
            known = self._read.get(folder)
        if known is not None and known.times == _times(folder, known.paths):
            return known
        found = read_contents(folder, self._environment)
        with self._guard:
            self._read[folder] = found
        return found

    def watched(self, folder: Path) -> Contents | FolderError | None:
        """Return what two looks have found alike; None before that. Looks in a thread now and then, and never waits."""
        now = self._clock()
        with self._guard:
            one = self._watched.setdefault(folder, _Watched())
            is_due = not one.is_looking and now >= one.due_at
            if is_due:
                one.is_looking, one.due_at = True, now + _LOOK_SECONDS
        if is_due:
            threading.Thread(target=self._look, args=(folder, one), name=f"look at {folder}", daemon=True).start()
        return one.settled

    def _look(self, folder: Path, one: "_Watched") -> None:
        try:
            found: Contents | FolderError = self.read(folder)
        except FolderError as error:
            found = error
        except Exception as error:
            logger.exception("%s: looking at the folder failed", folder)
            found = FolderError(f"{folder} cannot be read ({type(error).__name__}: {error})")
        with self._guard:
            if _are_alike(found, one.last):
                one.settled = found
            one.last, one.is_looking = found, False


@dataclass
class _Watched:
    settled: Contents | FolderError | None = None
    last: Contents | FolderError | None = None
    is_looking: bool = False
    due_at: float = 0.0


def _are_alike(one: Contents | FolderError, other: Contents | FolderError | None) -> bool:
    if isinstance(one, Contents) and isinstance(other, Contents):
        return one.digest == other.digest
    return isinstance(one, FolderError) and isinstance(other, FolderError)


def _probed(folder: Path, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the version of the folder's Python and the folders that it imports from. Raises FolderError."""
    python = python_of(folder)
    if not os.path.isdir(folder):
        raise FolderError(f"this host has no folder {folder}: make the environment there, as on the other hosts")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise FolderError(f"the user who runs the executor may not read {folder}: change its mode or owner")
    if not os.path.lexists(python):
        raise FolderError(
            f"{folder} has no bin/python: it has to be a virtual environment or a conda environment with a Python"
        )
    try:
        asked = subprocess.run(
            [str(python), "-c", _PROBE],
            cwd="/",
            env={**inherited_environment(environment), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FolderError(f"{python} did not answer for {_PROBE_SECONDS:.0f} s: make the environment anew") from None
    except OSError as error:
        raise FolderError(f"{python} cannot be run ({error.strerror}): make the environment anew") from None
    try:
        version, paths = json.loads(asked.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise FolderError(f"{python} cannot be run ({last}): make the environment anew") from None
    return str(version), [str(path) for path in paths]


def _times(folder: Path, paths: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return path and time of change, in ns, of the Python and of all that tells which distributions there are."""
    python = python_of(folder)
    found = {str(python): os.stat(python).st_mtime_ns} if os.path.exists(python) else {}
    for path in paths:
        found |= {entry.path: _time_of(entry) for entry in _entries(path) if entry.name.endswith(_LISTED)}
    records = _entries(str(folder / _CONDA_RECORDS))
    found |= {entry.path: _time_of(entry) for entry in records if entry.name.endswith(".json")}
    return tuple(sorted(found.items()))


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _time_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_mtime_ns
    except OSError:  # gone meanwhile, or a link to nothing
        return 0
