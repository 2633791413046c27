"""The guarantee that nothing outlives `up`: a pipe that only `up` can keep open, and an end to all descendants."""

from __future__ import annotations

import os
import time

from tidepool import procfs

__all__ = ["Lifeline", "end_descendants"]


class Lifeline:
    """A pipe whose read end is inherited down to the ranks' guardians. They end at once when it reads EOF.

    The write end stays in this process, so the kernel cuts the line even when this process is killed.
    """

    def __init__(self) -> None:
        self.read_descriptor, self._write_descriptor = os.pipe()
        self._cut = False

    def cut(self) -> None:
        if not self._cut:
            os.close(self._write_descriptor)
            self._cut = True


def end_descendants(grace_seconds: float) -> list[int]:
    """Wait until every descendant has ended by itself, then kill those that have not. Returns whom it killed.

    This process must be a subreaper, or it does not see the children of the dead.
    """
    deadline = time.monotonic() + grace_seconds
    while (left := procfs.descendants(os.getpid())) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed: set[int] = set()
    # A killed process's children become ours: look again until there is nobody.
    while left:
        for process in left:
            procfs.kill(process)
            killed.add(process.pid)
        time.sleep(0.02)
        left = procfs.descendants(os.getpid())
    return sorted(killed)
