"""Isolation of the trainings that tests start: by walls, as by default, where the kernel builds any.

The tests of the runtime start theirs without a wall. `TIDEPOOL_TEST_ISOLATION=walled`, or `separate` as root, puts
all of them behind one, or has them be a user of their own as well.
"""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from tidepool.confine import kernel
from tidepool.confine.wall import Wall

__all__ = ["forkserver_words", "isolation", "level_of_runtime_tests", "wall_around"]

_CHOICE: Final = "TIDEPOOL_TEST_ISOLATION"
#: User that trainings of the runtime's tests are, where they are one of their own.
_USER: Final = 70001


@cache
def isolation() -> dict[str, str]:
    """Return the setting without which an executor of this machine would run no training; {}: it builds walls."""
    try:
        kernel.landlock_abi()
    except OSError:
        return {"TIDEPOOL_ISOLATION": "shared"}
    return {}


def level_of_runtime_tests() -> str:
    """Return the level at which the tests of the runtime run; "": without walls."""
    chosen = os.environ.get(_CHOICE, "")
    if chosen not in ("", "walled", "separate"):
        raise ValueError(f"{_CHOICE} must be walled or separate, not {chosen!r}")
    return chosen


def forkserver_words(level: str) -> list[str]:
    """Return the words by which a forkserver tries what the level needs."""
    words = {"separate": ["--apart", str(_USER)], "sealed": ["--apart", str(_USER), "--sealed"]}
    return words.get(level, [])


def wall_around(folder: Path, readable: Iterable[str], level: str) -> Wall | None:
    """Return the wall of a training that writes in a folder; None: the level has none."""
    if not level:
        return None
    temporary = folder / ".temporary"
    temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
    places = tuple(place for place in readable if place)
    user = None if level == "walled" else _USER
    return Wall((), places, (str(folder),), str(temporary), user=user, has_own_devices=level == "sealed")
