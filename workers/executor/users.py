"""Users of the operating system that the trainings of this host are, where each person's are a user of their own."""

import os
import pwd
import re
from dataclasses import dataclass
from typing import Final

from tidepool.protocol import DesiredJob

__all__ = ["NoUserError", "UserIds", "user_ids_in", "user_of"]

_BY_NAME: Final = "names"
_RANGE: Final = re.compile(r"(\d{1,10})-(\d{1,10})")
#: Below it are the users of the system's services; above the other one, numbers that mean nobody.
_FIRST_ORDINARY: Final = 1000
_LAST: Final = 2**31 - 1
_NOBODY: Final = 65534


class NoUserError(Exception):
    """A training has no user here. The message is a sentence that says what to do."""


@dataclass(frozen=True)
class UserIds:
    """Users of trainings: a range of numbers, or the operating system's users of the same names (neither number)."""

    first: int | None = None
    last: int | None = None

    @property
    def tried(self) -> int:
        """Number of the user with which this host finds out whether it can change to one."""
        return _NOBODY if self.first is None else self.first


def user_ids_in(text: str) -> UserIds:
    """Return what TIDEPOOL_USER_IDS says: `names`, or a range as in 2100000000-2100099999. Raises ValueError."""
    if text == _BY_NAME:
        return UserIds()
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"TIDEPOOL_USER_IDS must be names, or a range such as 2100000000-2100099999, not {text!r}")
    first, last = int(found[1]), int(found[2])
    if not _FIRST_ORDINARY <= first <= last <= _LAST:
        raise ValueError(f"TIDEPOOL_USER_IDS must be a range from {_FIRST_ORDINARY} to {_LAST}, not {text!r}")
    if first <= os.getuid() <= last:
        raise ValueError(f"TIDEPOOL_USER_IDS must not contain {os.getuid()}, which is the user of Tidepool itself")
    return UserIds(first, last)


def user_of(ids: UserIds, desired: DesiredJob) -> int:
    """Return the number of the user that a training is here. Raises NoUserError."""
    if ids.first is None or ids.last is None:
        return _named(desired.launch.owner)
    if not desired.owner_number:
        raise NoUserError("the site is of a former release, which does not tell whose a training is: upgrade it")
    if (user := ids.first + desired.owner_number - 1) > ids.last:
        raise NoUserError(
            f"TIDEPOOL_USER_IDS of this host has {ids.last - ids.first + 1} numbers, and {desired.launch.owner} is "
            f"user {desired.owner_number} of the site: extend the range"
        )
    return user


def _named(name: str) -> int:
    try:
        user = pwd.getpwnam(name).pw_uid
    except KeyError:
        raise NoUserError(f"this host has no user {name!r}: add one, or give TIDEPOOL_USER_IDS a range") from None
    if user < _FIRST_ORDINARY or user == os.getuid():
        raise NoUserError(f"{name!r} is user {user} of this host, a user of the system: no training becomes that one")
    return user
