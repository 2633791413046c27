"""The logs of a rank, as it opens them at its start."""

import faulthandler
import os
import sys
from pathlib import Path

from tidepool import procfs
from tidepool.rank_exits import FATAL_FILE
from tidepool.stacks import answer_with_stacks

__all__ = ["open_logs"]


def open_logs(folder: Path, writers: tuple[int, int] | None) -> None:
    """Have stdout, stderr and a crash's stacks go to the folder.

    writers: descriptors for stdout and stderr, which the shim masks and writes; None: the files themselves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    procfs.redirect([0], Path(os.devnull))
    if writers is None:
        procfs.redirect([1], folder / "stdout")
        procfs.redirect([2], folder / "stderr")
    else:
        for descriptor, writer in zip((1, 2), writers, strict=True):
            os.dup2(writer, descriptor)
            os.close(writer)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(open(folder / FATAL_FILE, "w"))  # noqa: SIM115 - a crash writes its stacks there
    answer_with_stacks(folder)
