"""Processes and journals that a shim has left when it died."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil
from tidepool import procfs
from tidepool.journal import entries_in
from tidepool.protocol import RankExited, RankStarted

__all__ = ["left_behind", "ranks_without_end"]

#: Number of ranks without an end that a journal is believed about, the newest: no host has as many slots.
_MOST_RANKS: Final = 1024


def ranks_without_end(journal: Path) -> list[RankStarted]:
    """Return the ranks whose start a shim has written into its journal, but not their end."""
    started: dict[str, RankStarted] = {}
    for entry in entries_in(journal):
        if isinstance(entry, RankStarted):
            started[entry.member_id] = entry
            if len(started) > _MOST_RANKS:
                del started[next(iter(started))]
        elif isinstance(entry, RankExited):
            started.pop(entry.member_id, None)
    return list(started.values())


def left_behind(mark: str, ranks: Sequence[RankStarted], *, user: int | None) -> list[psutil.Process]:
    """Return the processes that a shim has left. user: number of the training's user; None: it has no wall.

    A training can write into its journal that any process is its own. So behind walls, none counts that is not behind
    the wall of a training of this user, nor one of another training.
    """
    left = [*procfs.marked(f"{mark}.shim"), *procfs.marked(f"{mark}.rank")]
    begun_at = procfs.numbers_begun_at()
    own = [rank.pid for rank in ranks if _pid_is_its_own(rank.pid, rank.started_at, begun_at)]
    if own:
        found = [*procfs.members_of_sessions(own), *(each for tree in procfs.trees(own).values() for each in tree)]
        found = [*{process.pid: process for process in found}.values()]
        left += [each for each in found if user is None or procfs.may_be_of(each, mark, user)]
    return list({process.pid: process for process in left}.values())


def _pid_is_its_own(pid: int, started_at: float, begun_at: float) -> bool:
    """Return whether this pid belongs to that rank or its session, and not to a later process.

    The kernel does not reuse the pid of a session that still has members. A restarted machine, and a container in the
    place of another, begin anew. begun_at: Unix seconds at which this one began to count.
    """
    if not psutil.pid_exists(pid):
        return started_at > begun_at
    return procfs.alive(pid, started_at)
