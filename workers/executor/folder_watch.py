"""Watch over the folder that is a job's environment: what changes in it while ranks run here is told, once.

Its journal is `journal/host.<host>.jsonl` in the attempt's folder, beside that of the shim, which has another writer.
"""

import logging
import time
from pathlib import Path
from typing import Final

from tidepool.journal import Journal, entries_in
from tidepool.protocol import EnvironmentChanged, EnvironmentUsed

from workers.executor.environments.given import Contents, FolderError, Folders, changes_between

__all__ = ["FolderWatch", "host_journal_path"]

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 30.0


def host_journal_path(folder: Path, host: str) -> Path:
    """Return the executor's own journal of an attempt. folder: of the attempt."""
    return folder / "journal" / f"host.{host}.jsonl"


class FolderWatch:
    def __init__(self, folder: Path, folders: Folders, shim_journal: Path, journal: Path) -> None:
        """folder: the environment. shim_journal: it says what the folder held when the ranks were started."""
        self._folder, self._folders = folder, folders
        self._shim_journal, self._journal = shim_journal, journal
        self._used: EnvironmentUsed | None = None
        #: Digest that was told last.
        self._told = ""
        self._retry_at = 0.0

    def look(self) -> None:
        """Write an entry if the folder has changed; never waits."""
        found = self._folders.watched(self._folder)
        used = self._used or self._recall()
        if found is None or used is None:
            return
        digest = found.digest if isinstance(found, Contents) else ""
        if digest == self._told or time.monotonic() < self._retry_at:
            return
        try:
            writer = Journal(self._journal)
            writer.append(EnvironmentChanged(str(self._folder), digest, _changes(used, found), at=time.time()))
            writer.close()
        except OSError as error:  # the disk is full, for example, and the job's ranks matter more
            logger.warning("%s: a change is not told yet (%s)", self._folder, error)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        else:
            self._told = digest

    def _recall(self) -> EnvironmentUsed | None:
        """Return what the ranks were started with, and recall what was told; None before the journals say it."""
        for entry in entries_in(self._shim_journal):
            if isinstance(entry, EnvironmentUsed):
                self._used, self._told = entry, entry.digest
        if self._used is None:
            return None
        for entry in entries_in(self._journal):
            if isinstance(entry, EnvironmentChanged):
                self._told = entry.digest
        return self._used


def _changes(used: EnvironmentUsed, found: Contents | FolderError) -> list[str]:
    if isinstance(found, FolderError):
        return [str(found)]
    if found.digest == used.digest:
        return ["it is again as it was when they started"]
    old, new = ({"Python": each.python, **each.packages} for each in (used, found))
    return changes_between(old, new) or ["its packages were installed anew, in the same versions"]
