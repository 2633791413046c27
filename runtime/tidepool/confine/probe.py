"""Tries of a kernel's mechanisms, each in a child process that ends with it."""

import errno
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidepool.confine import calls, kernel, processes
from tidepool.confine.identity import become
from tidepool.confine.landlock import Rules
from tidepool.confine.levels import Abilities
from tidepool.confine.mounts import enter_view
from tidepool.confine.surround import python_folders
from tidepool.confine.wall import Wall

__all__ = ["RIGHTS", "RIGHT_TO_SEAL", "Apart", "probe"]

_LANDLOCK_WORDS = {
    errno.ENOSYS: "Its kernel has no Landlock: Linux 5.13 is the first with it.",
    errno.EOPNOTSUPP: "Landlock is off in its kernel: add landlock to the boot option lsm=.",
}
#: Capabilities without which trainings cannot be users of their own, by their numbers in linux/capability.h.
RIGHTS = {
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
}
#: The further one by which GPUs are put into a private /dev.
RIGHT_TO_SEAL = {"CAP_MKNOD": 27}
#: Settings that forbid user namespaces to ordinary users, by the value that does.
_FORBIDDING = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
    "/proc/sys/kernel/unprivileged_userns_clone": "0",
    "/proc/sys/user/max_user_namespaces": "0",
}


@dataclass(frozen=True)
class Apart:
    """A user that trainings could be, and the folders in which it is to write."""

    user: int
    places: tuple[str, ...]
    #: Whether they could have a private /dev as well.
    has_own_devices: bool = False


def probe(apart: Apart | None = None) -> Abilities:
    """Return what this process can do. It has one thread. apart: try whether trainings can be users of their own."""
    landlock, why_no_landlock = _landlock()
    with tempfile.TemporaryDirectory() as folder:
        why_no_mounts = _tried(lambda: _try_mounts(os.path.realpath(folder)))
    machine = kernel.machine()
    can_filter = calls.filter_for(machine, has_closed_ports=True) is not None
    why_no_calls = _tried(lambda: _try_calls(machine))
    return Abilities(
        landlock,
        why_no_landlock,
        not why_no_mounts,
        f"{why_no_mounts}{_forbidding_setting()}" if why_no_mounts else "",
        can_filter and not why_no_calls,
        **({} if apart is None else _users(apart)),
    )


def _users(apart: Apart) -> dict[str, Any]:
    why = _missing_right(RIGHTS) or _tried(lambda: _try_user(replace(apart, has_own_devices=False)))
    found: dict[str, Any] = {"users": not why, "why_no_users": why}
    if apart.has_own_devices:
        why = why or _missing_right(RIGHT_TO_SEAL) or _tried(lambda: _try_user(apart))
        found |= {"devices": not why, "why_no_devices": why}
    return found


def _missing_right(rights: Mapping[str, int]) -> str:
    has = kernel.capabilities()
    missing = [name for name, number in rights.items() if not has >> number & 1]
    return f"its executor lacks {', '.join(missing)}" if missing else ""


def _try_user(apart: Apart) -> None:
    """Do what a shim does, in folders of its own in each place. Raises OSError."""
    with ExitStack() as stack:
        own = [stack.enter_context(tempfile.TemporaryDirectory(prefix=".try-", dir=place)) for place in apart.places]
        with tempfile.TemporaryDirectory() as temporary:
            wall = Wall(
                *((), (), tuple(map(os.path.realpath, own)), os.path.realpath(temporary)),
                user=apart.user,
                has_own_devices=apart.has_own_devices,
            )
            if why := _tried(lambda: _be_user(wall, apart.user), is_apart=True):
                raise OSError(0, why)
            for file in (Path(place, "file") for place in own):
                if file.stat().st_uid != os.geteuid():
                    raise OSError(0, f"what trainings write would be another user's: {file.parent.parent}")


def _be_user(wall: Wall, user: int) -> None:
    python_before = python_folders()
    enter_view(wall, [], python_folders())
    processes.enter_own_view()
    become(user)
    if os.getpid() != 1 or os.readlink("/proc/self") != "1":
        raise OSError(0, "it has no process space of its own")
    for place in wall.writable:
        try:
            Path(place, "file").touch()
        except OSError as error:
            raise OSError(
                0, f"the users of trainings cannot write in {Path(place).parent} ({error.strerror})"
            ) from None
    for entry in python_before:
        if not os.access(entry, os.R_OK):
            raise OSError(0, f"its Python is in {entry}, which other users cannot read")
    if wall.has_own_devices:
        _try_devices()


def _try_devices() -> None:
    for place in (os.devnull, "/dev/ptmx", "/dev/urandom"):
        os.close(os.open(place, os.O_RDWR if place == "/dev/ptmx" else os.O_RDONLY))


def _landlock() -> tuple[int, str]:
    try:
        abi = kernel.landlock_abi()
    except OSError as error:
        return 0, _LANDLOCK_WORDS.get(error.errno or 0, f"Landlock cannot be used here ({error.strerror}).")
    why = _tried(lambda: _try_landlock(abi))
    return (0, f"Landlock cannot be used here ({why}).") if why else (abi, "")


def _try_landlock(abi: int) -> None:
    kernel.no_new_privileges()
    Rules(abi).apply()
    try:
        os.listdir("/")
    except PermissionError:
        return
    raise OSError(0, "its rules have no effect")


def _try_mounts(folder: str) -> None:
    places = {name: Path(folder, name) for name in ("hidden", "own", "temporary")}
    for place in places.values():
        place.mkdir()
    (places["hidden"] / "secret").touch()
    hidden, own = str(places["hidden"]), str(places["own"])
    enter_view(Wall((hidden,), (), (own,), str(places["temporary"])), [hidden], [])
    (places["own"] / "file").touch()
    if (places["hidden"] / "secret").exists():
        raise OSError(0, "a mount has no effect")


def _try_calls(machine: str) -> None:
    kernel.no_new_privileges()
    calls.apply(machine, has_closed_ports=True)


def _tried(attempt: Callable[[], None], *, is_apart: bool = False) -> str:
    """Return why the attempt failed in a child process; "": it did not."""
    receiving, sending = os.pipe()
    pid = processes.fork(is_apart=is_apart)
    if pid == 0:
        try:
            attempt()
            why = ""
        except BaseException as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        os.write(sending, json.dumps(why).encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as answer:
        text = answer.read()
    with suppress(ChildProcessError):  # a process that ignores the ends of its children
        os.waitpid(pid, 0)
    return str(json.loads(text)) if text else "the attempt was ended by the kernel"


def _forbidding_setting() -> str:
    for file, value in _FORBIDDING.items():
        try:
            if Path(file).read_text().strip() == value:
                return f", by {file.removeprefix('/proc/sys/').replace('/', '.')}={value}"
        except OSError:
            continue
    return ""
