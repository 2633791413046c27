"""Isolation of the trainings that tests start: by walls, as by default, where the kernel builds any."""

from functools import cache

from tidepool.confine import kernel

__all__ = ["isolation"]


@cache
def isolation() -> dict[str, str]:
    """Return the setting without which an executor of this machine would run no training; {}: it builds walls."""
    try:
        kernel.landlock_abi()
    except OSError:
        return {"TIDEPOOL_ISOLATION": "shared"}
    return {}
