"""The niceness of ranks without a GPU."""

import os
import threading
import time
import warnings
from pathlib import Path

__all__ = ["yield_to_others"]

#: Added to the niceness of ranks on virtual GPUs. They train on the processors that the control plane of a small
#: installation runs on, would take all of them, and wait then for the answers that it has no time to give.
_VIRTUAL_NICENESS = 5
_AUTOGROUP = Path("/proc/self/autogroup")
_AUTOGROUP_PATIENCE_SECONDS = 10.0


def yield_to_others() -> None:
    """Let everything else on this machine go first.

    Where the kernel schedules by sessions (autogroups), the niceness of a process counts within its session only, and
    a rank has one of its own: the session gets the same niceness.
    """
    os.nice(_VIRTUAL_NICENESS)
    if _AUTOGROUP.exists():
        threading.Thread(target=_make_session_nice, name="session-niceness", daemon=True).start()


def _make_session_nice() -> None:
    """The kernel lets one user do this once in a tenth of a second."""
    deadline = time.monotonic() + _AUTOGROUP_PATIENCE_SECONDS
    while True:
        try:
            _AUTOGROUP.write_text(str(_VIRTUAL_NICENESS))
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                warnings.warn("tidepool: the niceness of this rank's session could not be set", stacklevel=1)
                return
            time.sleep(0.1 + os.getpid() % 16 / 160)
