"""Users of their own for the processes of a training, on a host whose forkserver may change its user.

Files stay their owner's on the disk: in a training's view, mounts show the user of the forkserver as the training's
user, and no other one. So what trainings write needs no change of owner, and outside of its view a training's user may
open nothing of anybody's.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from tidepool.confine import kernel

__all__ = ["become", "forget_namespaces", "map_owner", "owner_namespace"]

#: Devices that the members of a group may use: their groups stay, if the forkserver is in them.
_DEVICES_OF_GROUPS = ("/dev/kfd", "/dev/dri", "/dev/infiniband", "/dev/accel")
_LAST_ID = 2**32 - 2
#: Open user namespaces by the user that they show, the one made first at the front, and how many are kept.
_namespaces: dict[int, int] = {}
_MOST_NAMESPACES = 64


class NotDroppedError(OSError):
    """The process could still get rights that it must not have."""


def become(user: int) -> None:
    """Be an ordinary user without any right of another one, for good. Raises OSError; end the process then.

    From one ordinary user to another the kernel keeps capabilities, so all sets are cleared and looked at.
    """
    groups = sorted(_groups_of_devices() & {*os.getgroups(), os.getegid()} if os.getuid() else _groups_of_devices())
    kernel.no_new_privileges()
    kernel.drop_from_bounding_set(0)
    os.setgroups(groups)
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kernel.capset(0)
    kernel.make_readable_to_itself()
    _verify(user)


def _verify(user: int) -> None:
    if left := kernel.capabilities() | kernel.bounding_set():
        raise NotDroppedError(0, f"capabilities are left: {left:#x}")
    for other in {0, 1} - {user}:
        with suppress(PermissionError):
            os.setresuid(other, other, other)
            raise NotDroppedError(0, f"it can become the user {other}")


def _groups_of_devices() -> set[int]:
    places = [*_DEVICES_OF_GROUPS, *(entry.path for folder in _DEVICES_OF_GROUPS for entry in _entries(folder))]
    return {os.stat(place).st_gid for place in places if os.path.exists(place)} - {0}


def _entries(folder: str) -> Iterable[os.DirEntry[str]]:
    return [*os.scandir(folder)] if os.path.isdir(folder) else []


def owner_namespace(user: int) -> int:
    """Return the descriptor of a user namespace by which mounts show this process's user and group as `user`.

    It stays open for later calls: to make one takes a fork, which takes a process with torch several milliseconds.
    Raises OSError.
    """
    if user not in _namespaces:
        while len(_namespaces) >= _MOST_NAMESPACES:
            os.close(_namespaces.pop(next(iter(_namespaces))))
        _namespaces[user] = _made_namespace(user)
    return _namespaces[user]


def forget_namespaces() -> None:
    """Close the namespaces that this process has made or inherited."""
    while _namespaces:
        os.close(_namespaces.popitem()[1])


def _made_namespace(user: int) -> int:
    owner, group = os.geteuid(), os.getegid()
    waiting, going_on = os.pipe()
    pid = os.fork()
    if pid == 0:
        _hold_namespace(waiting, going_on)
    os.close(going_on)
    try:
        seen = os.read(waiting, 16).decode()
        if not seen:
            raise OSError(0, "user namespaces cannot be made")
        _write(f"/proc/{seen}/uid_map", f"{owner} {user} 1")
        _write(f"/proc/{seen}/gid_map", _groups_but(group, user))
        return os.open(f"/proc/{seen}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(waiting)
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # a process that ignores the ends of its children
            os.waitpid(pid, 0)


def _hold_namespace(waiting: int, ready: int) -> None:
    try:
        os.close(waiting)
        kernel.unshare(kernel.NEW_USER)
        # The process's number as /proc counts, which is that of the host here.
        os.write(ready, os.readlink("/proc/self").encode())
        signal.pause()
    finally:
        os._exit(1)


def _groups_but(group: int, user: int) -> str:
    """Return a map in which all groups but these two are themselves: files keep groups that are not the user's."""
    low, high = sorted((group, user))
    ranges = [(0, low), (low + 1, high - low - 1), (high + 1, _LAST_ID - high)]
    lines = [f"{first} {first} {count}" for first, count in ranges if count > 0]
    return "\n".join([*lines, f"{group} {user} 1"])


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def map_owner(tree: int, namespace: int, place: str) -> None:
    """Show owners in a copy of mounts as the namespace maps them. Raises OSError that names the place."""
    try:
        kernel.map_users(tree, namespace)
    except OSError as error:
        raise OSError(
            error.errno, f"its file system does not show owners as others ({error.strerror})", place
        ) from None
