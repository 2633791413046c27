"""Room that a user's trainings take on the disk, and the limits that the site has set for each user and training."""

from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Sum
from tidepool.units import size_words

from core.errors import DiskFull
from jobs.models import DiskUse, Job

__all__ = ["DiskRoom", "JobRoom", "disk_room", "job_room", "refuse_beyond_room"]

#: Fraction of a limit from which pages warn.
_WARNED = 0.8
_HOW = "Remove checkpoints and results that are not needed: the site measures again within ten minutes to a day."
_NO_FURTHER = "no further one of yours is accepted"


class DiskRoom(NamedTuple):
    """Sizes in bytes. A limit of 0: there is none."""

    used: int
    limit: int
    #: Job and size of the user's largest training; None: none has been measured.
    largest: tuple[int, int] | None = None
    training_limit: int = 0

    @property
    def is_full(self) -> bool:
        return bool(self.limit) and self.used >= self.limit

    @property
    def has_full_training(self) -> bool:
        return bool(self.training_limit and self.largest) and self._size >= self.training_limit

    @property
    def warning(self) -> str:
        """Return sentences from four fifths of a limit on; "": there is room."""
        found = [*filter(None, (self._of_user, self._of_training))]
        return " ".join([*found, _HOW] if found else found)

    @property
    def _size(self) -> int:
        return self.largest[1] if self.largest else 0

    @property
    def _of_user(self) -> str:
        if not self.limit or self.used < _WARNED * self.limit:
            return ""
        words = (
            f"Your trainings take {size_words(self.used)} of the {size_words(self.limit)} on the disk that you may have"
        )
        return f"{words}: {_NO_FURTHER}." if self.is_full else f"{words}. Once they take all of it, {_NO_FURTHER}."

    @property
    def _of_training(self) -> str:
        if not self.training_limit or self.largest is None or self._size < _WARNED * self.training_limit:
            return ""
        words = (
            f"Training {self.largest[0]} takes {size_words(self._size)} of the {size_words(self.training_limit)} on the"
            " disk that a training may have"
        )
        return f"{words}: {_NO_FURTHER}." if self.has_full_training else f"{words}. Beyond that, {_NO_FURTHER}."


class JobRoom(NamedTuple):
    #: "12 GiB on the disk", with its part of the limit of a training.
    words: str
    measured_at: datetime


def disk_room(user: User) -> DiskRoom:
    """Return the room of the user's trainings, as far as there are limits."""
    limit, training_limit = settings.TIDEPOOL_USER_DISK, settings.TIDEPOOL_TRAINING_DISK
    of_user = DiskUse.objects.filter(job__owner=user)
    used = of_user.aggregate(total=Sum("size_bytes"))["total"] if limit else 0
    largest = (
        of_user.order_by("-size_bytes", "job").values_list("job", "size_bytes").first() if training_limit else None
    )
    return DiskRoom(used or 0, limit, largest, training_limit)


def refuse_beyond_room(user: User) -> None:
    """Raise DiskFull if the user's trainings, or one of them, take all that they may."""
    room = disk_room(user)
    if room.is_full or room.has_full_training:
        raise DiskFull(room.warning)


def job_room(job: Job) -> JobRoom | None:
    """Return the room that the job took when it was measured last; None: it has not been measured."""
    use = DiskUse.objects.filter(job=job).first()
    if use is None:
        return None
    words, limit = f"{size_words(use.size_bytes)} on the disk", settings.TIDEPOOL_TRAINING_DISK
    if limit:
        words += f", {100 * use.size_bytes / limit:.0f} % of the {size_words(limit)} that a training may have"
    return JobRoom(words, use.measured_at)
