"""Room that a user's trainings take on the disk, and the limit that the site has set for each user."""

from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Sum
from tidepool.units import size_words

from core.errors import DiskFull
from jobs.models import DiskUse, Job

__all__ = ["DiskRoom", "disk_room", "job_room_words", "refuse_beyond_room"]

#: Fraction of the limit from which pages warn.
_WARNED = 0.8
_HOW = "Remove checkpoints and results that are not needed: the site measures again within ten minutes to a day."


class DiskRoom(NamedTuple):
    """Sizes in bytes. limit: 0, if there is none."""

    used: int
    limit: int

    @property
    def is_full(self) -> bool:
        return bool(self.limit) and self.used >= self.limit

    @property
    def warning(self) -> str:
        """Return a sentence from four fifths of the limit on; "": there is room."""
        if not self.limit or self.used < _WARNED * self.limit:
            return ""
        words = (
            f"Your trainings take {size_words(self.used)} of the {size_words(self.limit)} on the disk that you may have"
        )
        if self.is_full:
            return f"{words}: no further one is accepted. {_HOW}"
        return f"{words}. Once they take all of it, no further training is accepted. {_HOW}"


def disk_room(user: User) -> DiskRoom:
    limit = settings.TIDEPOOL_USER_DISK
    if not limit:
        return DiskRoom(0, 0)
    total = DiskUse.objects.filter(job__owner=user).aggregate(total=Sum("size_bytes"))["total"]
    return DiskRoom(total or 0, limit)


def refuse_beyond_room(user: User) -> None:
    """Raise DiskFull if the user's trainings take all that they may."""
    if (room := disk_room(user)).is_full:
        raise DiskFull(room.warning)


def job_room_words(job: Job) -> str:
    """Return "12 GiB on the disk"; "": it has not been measured."""
    use = DiskUse.objects.filter(job=job).first()
    return "" if use is None else f"{size_words(use.size_bytes)} on the disk"
