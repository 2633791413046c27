"""Build a wall around this process, and so around all that it starts."""

import errno
import os
import site
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tidepool.confine import calls, kernel, processes
from tidepool.confine.devices import FOLDER
from tidepool.confine.identity import become, forget_namespaces, owner_namespace
from tidepool.confine.landlock import DEVICE, LIST, PROCESSES, READ, WRITE, Rules, port_rules
from tidepool.confine.levels import Abilities
from tidepool.confine.mounts import SERVICES, TEMPORARY, drop_capabilities, enter_view, kept_services
from tidepool.confine.wall import Wall, is_within, with_targets, without
from tidepool.env import program_folders, use_temporary_folder

__all__ = ["prepare", "python_folders", "surround"]

#: Folders that every program needs to read.
_SYSTEM = (
    *(
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc",
        "/opt",
        "/sys",
        "/nix/store",
        "/gnu/store",
    ),
    *("/snap", "/var/lib/ca-certificates", "/var/lib/dpkg", "/var/cache/fontconfig", "/var/cache/ldconfig"),
)
#: Files below those that are for the machine's administrator alone.
_PRIVATE = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers"),
    *("/etc/sudoers.d", "/etc/tidepool", "/etc/security/opasswd", "/etc/kubernetes", "/etc/docker"),
)
_DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fuse", "kfd", "dri", "infiniband", "accel"),
    *("nvidia-caps", "nvidia-caps-imex-channels", "gdrdrv", "hugepages", "dxg", "davinci_manager"),
)
#: Beginnings of the names of further devices for computing.
_NUMBERED_DEVICES = ("nvidia", "accel", "davinci", "uverbs")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
_KERNEL_SETTING = "/proc/sys/kernel/core_pattern"


def prepare(wall: Wall, abilities: Abilities) -> None:
    """Find out, in the process that will fork, what its children have in common. Raises OSError."""
    _common(wall.resolved().hidden, abilities.mounts)
    if wall.user is not None and abilities.users:
        owner_namespace(wall.user)
    port_rules(abilities.landlock, _ports(wall))


def surround(wall: Wall, abilities: Abilities, *, is_apart: bool = False) -> None:
    """Put this process behind the wall, as far as the kernel can, for good. It has one thread. Raises OSError.

    is_apart: it is the first process of a space of its own.
    """
    os.makedirs(wall.temporary, mode=0o700, exist_ok=True)  # a container does not have the one that its host has
    wall = wall.resolved()
    system, python = _common(wall.hidden, abilities.mounts)
    readable = [*python, *_shown(wall.readable, wall.hidden)]
    if abilities.mounts:
        enter_view(wall, [*wall.hidden, *_private()], readable)
    forget_namespaces()
    outside = None
    if wall.user is None:
        kernel.no_new_privileges()
        drop_capabilities()
    else:
        outside = processes.enter_own_view() if is_apart else None
        become(wall.user)
        _require_writable([*wall.writable, TEMPORARY[0]])
    rules = Rules(abilities.landlock)
    if outside is not None:
        rules.allow(f"/proc/self/fd/{outside}", READ)
    for place in (*system, *readable):
        rules.allow(place, READ)
    # A view covers what is hidden in a place; without one, the place is taken to pieces.
    for place in (*(wall.writable if abilities.mounts else _shown(wall.writable, wall.hidden)), wall.temporary):
        rules.allow(place, WRITE)
    _allow_devices(rules, wall)
    _allow_processes(rules, abilities)
    _allow_shared_places(rules, wall, abilities)
    rules.apply()
    if (ports := port_rules(abilities.landlock, _ports(wall))) is not None:
        kernel.restrict_self(ports)
    if abilities.calls:
        calls.apply(kernel.machine(), has_closed_ports=bool(wall.closed_ports))
    use_temporary_folder(TEMPORARY[0] if abilities.mounts else wall.temporary)


def _require_writable(places: Iterable[str]) -> None:
    for place in places:
        if os.path.exists(place) and not os.access(place, os.W_OK):
            raise PermissionError(
                errno.EACCES, "the training's user may not write there: the pool is another user's", place
            )


def _ports(wall: Wall) -> tuple[int, ...]:
    return tuple(sorted(wall.closed_ports))


@lru_cache(maxsize=4)
def _common(hidden: tuple[str, ...], mounts: bool) -> tuple[list[str], list[str]]:
    """Return the system's places that everybody may read, and those of this Python.

    Private files of the system are covered where processes have a view of their own. Elsewhere the folders that have
    some are taken to pieces: a file that is replaced there meanwhile cannot be read any more.
    """
    private = [] if mounts else _private()
    system = [part for place in _SYSTEM for part in without(os.path.realpath(place), [*hidden, *private], _children)]
    return system, _shown(python_folders(), hidden)


def _private() -> list[str]:
    return [os.path.realpath(place) for place in _PRIVATE if os.access(place, os.R_OK)]


def python_folders() -> list[str]:
    """Return the folders that this Python and its packages are in, and the programs on its path."""
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, *site.getsitepackages()]
    places += [str(Path(sys.executable).resolve().parent), str(Path(__file__).parents[2])]
    places += program_folders()
    return [place for place in with_targets(places) if place != "/"]


def _shown(places: Iterable[str], hidden: Sequence[str]) -> list[str]:
    """Return places, or the parts of them without what is closed in them. A place below a closed one is meant to be."""
    closed = [*hidden, SERVICES, *TEMPORARY]

    def parts(place: str) -> list[str]:
        is_around = any(is_within(each, place) for each in closed)
        return without(place, closed, _children) if is_around else [place]

    return [part for place in places for part in parts(place)]


def _children(place: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(place)]
    except OSError:
        return []


def _allow_devices(rules: Rules, wall: Wall) -> None:
    if wall.has_own_devices:  # and whatever the executor puts there later
        rules.allow(FOLDER, DEVICE | LIST)
        rules.allow(_SHARED_MEMORY, WRITE)
        return
    numbered = [name for name in os.listdir("/dev") if name.startswith(_NUMBERED_DEVICES)]
    rules.allow("/dev", LIST)
    for name in (*_DEVICES, *numbered):
        rules.allow(f"/dev/{name}", DEVICE)
    rules.allow(_SHARED_MEMORY, WRITE)


def _allow_processes(rules: Rules, abilities: Abilities) -> None:
    """Allow /proc, but not the settings of the kernel to root: no mount guards them without a view of one's own."""
    are_open = os.geteuid() == 0 and not abilities.mounts and os.access(_KERNEL_SETTING, os.W_OK)
    rules.allow("/proc", READ if are_open else PROCESSES)
    rules.allow("/proc/self", PROCESSES)


def _allow_shared_places(rules: Rules, wall: Wall, abilities: Abilities) -> None:
    """Allow what is private in a view of one's own; without one, only where nothing hidden is."""
    for place in TEMPORARY:
        if abilities.mounts or not any(is_within(each, place) for each in wall.hidden):
            rules.allow(place, WRITE)
    for place in [SERVICES] if abilities.mounts else kept_services():
        rules.allow(place, READ)
