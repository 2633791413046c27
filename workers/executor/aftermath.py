"""Clean-up after a shim that was killed: ends its processes and completes its journal. Called by the reconciler."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path

import psutil
from tidepool import procfs
from tidepool.journal import Journal, read_journal
from tidepool.protocol import RankExited, RankStarted

__all__ = ["clear_away"]

logger = logging.getLogger(__name__)

_SHIM_LOST = {
    "kind": "ShimLost",
    "message": "the process that guarded this rank on its host was killed, and the rank with it",
    "traceback": "",
}


def clear_away(mark: str, journal: Path) -> bool:
    """Whether nothing of the shim is left; call again until it is. Without a shim before, there is nothing to do.

    `mark` is the job's: shim and ranks continue it. Ranks are found by their records, what they started by descent,
    by session and by mark.
    """
    missing = _ranks_without_end(journal)
    left = _left_behind(mark, missing)
    for process in left:
        logger.warning("pid=%s mark=%s: ended, its shim is gone", process.pid, mark)
        procfs.kill(process)
    if left:
        return False
    if missing:
        _write_ends(journal, missing)
    return True


def _ranks_without_end(journal: Path) -> list[RankStarted]:
    started: dict[str, RankStarted] = {}
    for entry in read_journal(journal):
        if isinstance(entry, RankStarted):
            started[entry.member_id] = entry
        elif isinstance(entry, RankExited):
            started.pop(entry.member_id, None)
    return list(started.values())


def _left_behind(mark: str, ranks: list[RankStarted]) -> list[psutil.Process]:
    left = [*procfs.marked(f"{mark}.shim"), *procfs.marked(f"{mark}.rank")]
    for rank in ranks:
        if _pid_is_its_own(rank.pid, rank.started_at):
            left += [*procfs.session_members(rank.pid), *procfs.descendants(rank.pid)]
    return list({process.pid: process for process in left}.values())


def _pid_is_its_own(pid: int, started_at: float) -> bool:
    """Whether what bears this pid is that rank or its session, not a stranger.

    Until the machine restarts, the kernel gives no new process the pid of a session that still has members.
    """
    if not psutil.pid_exists(pid):
        return started_at > psutil.boot_time()
    return procfs.alive(pid, started_at)


def _write_ends(path: Path, ranks: list[RankStarted]) -> None:
    journal = Journal(path)
    for rank in ranks:
        place = (rank.member_id, rank.slot, rank.pid)
        journal.append(RankExited(*place, signal=int(signal.SIGKILL), error=_SHIM_LOST, at=time.time()))
    journal.close()
