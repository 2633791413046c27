"""PID namespaces: whether what an earlier executor of this host has left runs in this executor's own.

Marks, sessions and descendants of processes are read from /proc, which shows one namespace and those below it. A
container that takes the place of another one has a namespace of its own; with the former container its processes end.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from tidepool import json_sockets

__all__ = ["OUT_OF_SIGHT", "is_left_out_of_sight"]

#: Log message about a host and its run folder.
OUT_OF_SIGHT: Final = (
    "host=%s: processes whose sockets are in %s run in another PID namespace, such as another container's, where this "
    "executor can neither see nor end them: it starts nothing until they have ended. End that container, or run this "
    "executor in it."
)
_SECONDS: Final = 2.0


def is_left_out_of_sight(run_folder: Path) -> bool:
    """Return whether a forkserver, shim or coordinator of this host runs where this process cannot see it."""
    return any(_is_out_of_sight(path) for path in run_folder.glob("*.sock"))


def _is_out_of_sight(path: Path) -> bool:
    with suppress(OSError), json_sockets.connect(path, _SECONDS) as connection:  # nothing listens there any more
        return json_sockets.is_out_of_sight(connection)
    return False
