"""A private view of the file system: all of it read-only, hidden places covered, and the job's own places writable.

Landlock does not keep a process from connecting to a unix socket that has a path, nor from changing modes, times and
attributes of files. Processes in this view do not see the sockets, and all that is not theirs is read-only. Nor do they
share the memory, semaphores and message queues of System V and POSIX with others: Landlock does not guard these.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tidepool.confine import devices, kernel
from tidepool.confine.identity import map_owner, owner_namespace
from tidepool.confine.wall import Wall, is_within, outer

__all__ = ["SERVICES", "TEMPORARY", "drop_capabilities", "enter_view", "kept_services"]

_SLAVE, _RECURSIVE = 1 << 19, 1 << 14
#: Folders for temporary files, which the job gets one of its own for.
TEMPORARY = tuple({os.path.realpath(place): None for place in ("/tmp", "/var/tmp")})  # noqa: S108 - covered, not used
#: Folder with the sockets of the machine's services, and what is needed of them: the resolver, and NVIDIA's daemons.
SERVICES = "/run"
_KEPT_SERVICES = ("systemd/resolve", "nvidia-persistenced", "nvidia-fabricmanager", "nscd", "resolvconf")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
#: Mounts that stay writable; permissions guard what is there.
_WRITABLE = ("/proc", "/dev/pts", "/dev/hugepages")
_NO_PROGRAMS_OR_SETUID = 0b1010
#: Settings of the kernel, which uid 0 may change without any capability.
_KERNEL_SETTINGS = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"))
#: Capabilities that root keeps: over files, and locked memory for network cards. Numbers as in linux/capability.h.
_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _IPC_LOCK, _SYS_ADMIN = 0, 1, 3, 4, 14, 21
_KEPT_BY_ROOT = sum(1 << number for number in (_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _IPC_LOCK))


def kept_services() -> list[str]:
    return [f"{SERVICES}/{name}" for name in _KEPT_SERVICES]


def enter_view(wall: Wall, hidden: Sequence[str], shown: Sequence[str]) -> None:
    """Move this process, which has one thread, into a private view. Raises OSError.

    wall: resolved. hidden: places to cover. shown: places that stay readable below covered ones.
    """
    own = [*{*wall.readable, *wall.writable}]  # each once: a mount shows its owners as others only once
    if wall.user is not None:
        hidden = [*hidden, *_closed_to_others([*shown, *own])]
        # Seen as another user's there, it may have places below it that this one mounts. Its own folder is closed.
        os.chmod(wall.temporary, 0o711)  # noqa: S103
    _leave_mounts()
    kernel.mount("", "/", "", _SLAVE | _RECURSIVE)
    covered = sorted(_existing([*outer([*hidden, SERVICES, _SHARED_MEMORY]), *TEMPORARY]))
    writable = [*wall.writable, *_WRITABLE]
    if wall.has_own_devices:
        covered = sorted([*covered, devices.FOLDER])
        writable = [*wall.writable, "/proc", *devices.shared_files()]
    below = [place for place in [*shown, *kept_services()] if any(is_within(place, each) for each in covered)]
    if wall.user is not None:  # places that only the forkserver's user may read are to be readable
        below = [*{*below, *filter(_is_ours, wall.readable)}]
    closed = [*_existing(below), *(_existing(_KERNEL_SETTINGS) if os.geteuid() == 0 else [])]
    view = {place: kernel.clone_tree(place) for place in [*closed, *_existing(writable)]}
    spare = {place: kernel.clone_tree(wall.temporary) for place in covered if place in TEMPORARY}
    if wall.user is not None:
        namespace = owner_namespace(wall.user)
        for place, tree in [*((place, view[place]) for place in own if place in view), *spare.items()]:
            if place in spare or _is_ours(place):
                map_owner(tree, namespace, place)
    spare |= {place: kernel.clone_tree(os.devnull) for place in covered if not os.path.isdir(place)}
    for place in {*closed} - {*wall.writable}:
        kernel.set_read_only(view[place])
    kernel.set_read_only("/")
    for place in sorted({*covered, *view}):  # outer ones first: a place may hide one that it is in, or show one
        if place in covered:
            _cover(place, spare.get(place), wall)
        if place in view:
            _attach(view[place], place, wall.user)
    for place in covered:
        if place not in spare and place not in (_SHARED_MEMORY, devices.FOLDER):
            kernel.set_read_only(place, recursive=False)
    if wall.has_own_devices:
        _finish_devices(wall.user)
    os.chdir("/")


def _finish_devices(user: int | None) -> None:
    devices.link_standard_files()
    _make(devices.PSEUDO_TERMINALS, user, is_folder=True)
    kernel.mount("devpts", devices.PSEUDO_TERMINALS, "devpts", _NO_PROGRAMS_OR_SETUID, "ptmxmode=0666,mode=0620")


def drop_capabilities() -> None:
    """Keep none, and as root only those that files need."""
    kept = _KEPT_BY_ROOT & kernel.capabilities() if os.geteuid() == 0 else 0
    kernel.drop_from_bounding_set(kept)
    kernel.capset(kept)


def _leave_mounts() -> None:
    """Get a copy of the mounts, and an IPC namespace. Without the right to it, be the only user of a user namespace."""
    if kernel.capabilities() >> _SYS_ADMIN & 1:
        kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_IPC)
        return
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNTS | kernel.NEW_IPC)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _closed_to_others(places: Iterable[str]) -> list[str]:
    """Return the folders around places that other users cannot pass; covered, what is shown below them is in reach."""
    closed = set()
    for place in places:
        around = [str(parent) for parent in reversed(Path(place).parents)]
        closed.update(next(([parent] for parent in around if not os.stat(parent).st_mode & 0o001), []))
    return sorted(closed)


def _is_ours(place: str) -> bool:
    return os.stat(place).st_uid == os.geteuid()


def _existing(places: Iterable[str]) -> list[str]:
    return [place for place in places if os.path.exists(place)]


def _cover(place: str, tree: int | None, wall: Wall) -> None:
    if tree is not None:
        if os.path.lexists(place):  # else it is out of sight already, in an outer place that is covered
            kernel.move_tree(tree, place)
        os.close(tree)
    elif place == _SHARED_MEMORY:
        _make(place, wall.user, is_folder=True)  # a private /dev is empty
        size = "" if wall.shared_memory_bytes is None else f",size={wall.shared_memory_bytes}"
        kernel.mount("tmpfs", place, "tmpfs", 0, f"mode=1777{size}")
    else:
        _make(place, wall.user, is_folder=True)  # a hidden folder among temporary files, which are covered already
        kernel.mount("tmpfs", place, "tmpfs", 0, "mode=0755,size=1m")


def _attach(tree: int, place: str, user: int | None) -> None:
    if not os.path.lexists(place):
        _make(place, user, is_folder=os.path.isdir(f"/proc/self/fd/{tree}"))
    kernel.move_tree(tree, place)
    os.close(tree)


def _make(place: str, user: int | None, *, is_folder: bool) -> None:
    """Make a place to mount at, as the user of the view: none but that one can make files where owners are mapped."""
    ours = os.geteuid(), os.getegid()
    folder, missing = place if is_folder else os.path.dirname(place), []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    is_mapped = user is not None and os.stat(folder).st_uid == user
    try:
        if user is not None and is_mapped:
            kernel.act_on_files_as(user, user)
        for each in reversed(missing):
            with suppress(FileExistsError):  # other ranks of the training make it at the same time
                os.mkdir(each, 0o755)
        if not is_folder:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        kernel.act_on_files_as(*ours)
