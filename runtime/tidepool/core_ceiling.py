"""The number of times that the processes of a training have used up their cores on this host, by its kernel."""

from dataclasses import dataclass
from pathlib import Path

from tidepool.rank_exits import JOB_GROUP

__all__ = ["CoreCeiling"]

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Counts:
    #: Periods, each of a tenth of a second, in which the training wanted a core, and those in which it used up its own.
    periods: int
    used_up: int


class CoreCeiling:
    """The ceiling of the job's own control group, of either version, and what has come of it from now on."""

    def __init__(self, mount: Path = _MOUNT, own: str | None = None) -> None:
        """own: text of /proc/self/cgroup."""
        self._place = _place(mount, _text(_OWN) if own is None else own)
        self._before = self._read()

    @property
    def cores(self) -> float | None:
        """Cores that the training may use on this host now; None: there is no ceiling."""
        if self._place is None:
            return None
        quota, _, period = _text(self._place / "cpu.max").partition(" ")
        if not period:
            quota, period = _text(self._place / "cpu.cfs_quota_us"), _text(self._place / "cpu.cfs_period_us")
        return int(quota) / int(period) if quota.strip().isdigit() and period.strip().isdigit() else None

    def used_up(self) -> tuple[int, int]:
        """Return the numbers of periods so far, and of those in which the training had to wait for the next one."""
        now = self._read()
        return max(0, now.periods - self._before.periods), max(0, now.used_up - self._before.used_up)

    def _read(self) -> _Counts:
        lines = _text(self._place / "cpu.stat").splitlines() if self._place is not None else []
        found = {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value.isdigit()}
        return _Counts(found.get("nr_periods", 0), found.get("nr_throttled", 0))


def _place(mount: Path, own: str) -> Path | None:
    """Return the job's group in the hierarchy of cores; None: it has none of its own."""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if Path(path).name.startswith(JOB_GROUP) and (not controllers or "cpu" in controllers.split(",")):
            return mount / ("cpu" if controllers else "") / path.lstrip("/")
    return None


def _text(file: Path) -> str:
    """Return the text of a file of the kernel; "": it is not there, or not for this process."""
    try:
        return file.read_text()
    except OSError:
        return ""
