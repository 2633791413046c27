"""Devices of a sealed training: a private /dev with what every program needs, and the GPUs of its slots alone.

The guardian makes the folder while it builds its wall. The executor, which owns the folder, puts GPUs there and takes
them away while the training runs; a control group refuses the others whatever their path is.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal, NamedTuple

__all__ = ["FOLDER", "PSEUDO_TERMINALS", "Device", "device_of", "give", "link_standard_files", "shared", "shared_files"]

FOLDER: Final = "/dev"
PSEUDO_TERMINALS: Final = f"{FOLDER}/pts"
#: Devices that all trainings of a host share: those of every program, what drives NVIDIA's GPUs together, and networks.
_SHARED: Final = (
    *("null", "zero", "full", "random", "urandom", "tty"),
    *("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps-imex-channels", "infiniband"),
    *("gdrdrv", "hugepages"),
)
_LINKS: Final = {name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))}
_GPU: Final = re.compile(r"nvidia\d+")
_EVERYBODY: Final = 0o666


class Device(NamedTuple):
    """A device, or all devices of a driver, by the kernel's numbers."""

    kind: Literal["c", "b"]
    major: int
    #: Number of the device; None: all of the driver.
    minor: int | None


#: The multiplexer of pseudo-terminals, and the drivers of their ends.
_TERMINALS: Final = (Device("c", 5, 2), *(Device("c", major, None) for major in range(136, 144)))


def shared_files() -> list[str]:
    """Return the files and folders of /dev that every sealed training has."""
    places = (f"{FOLDER}/{name}" for name in _SHARED)
    return [place for place in places if os.path.exists(place) and not os.path.islink(place)]


def shared() -> frozenset[Device]:
    """Return the devices that every sealed training may open."""
    found = {device for place in shared_files() for device in _devices_in(place)}
    return frozenset(found | {*_TERMINALS})


def device_of(place: str) -> Device | None:
    """Return the device that a file stands for; None: none. Raises OSError."""
    facts = os.stat(place)
    if not (stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode)):
        return None
    kind: Literal["c", "b"] = "c" if stat.S_ISCHR(facts.st_mode) else "b"
    return Device(kind, os.major(facts.st_rdev), os.minor(facts.st_rdev))


def _devices_in(place: str) -> Iterable[Device]:
    places = [entry.path for entry in os.scandir(place)] if os.path.isdir(place) else [place]
    return [device for each in places if (device := device_of(each)) is not None]


def link_standard_files() -> None:
    """Make the links of a new /dev: to the process's own files, and to the multiplexer of its pseudo-terminals."""
    for name, target in {**_LINKS, "fd": "/proc/self/fd", "ptmx": "pts/ptmx"}.items():
        os.symlink(target, f"{FOLDER}/{name}")


def give(pid: int, gpus: Mapping[str, Device], is_of_training: Callable[[int], bool]) -> None:
    """Have the private /dev of a training contain these GPUs, by the names of their files, and no others.

    pid: number of a process that sees this /dev. Only the training says it, so `is_of_training` is asked about it.
    Raises OSError, also if the process is another's or has no devices of its own.
    """
    # The folder stays this process's: if the number becomes another one's meanwhile, nothing is found there any more.
    process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not is_of_training(pid):
            raise PermissionError(errno.EPERM, f"process {pid} is none of this training")
        folder = _private_devices(process)
    finally:
        os.close(process)
    try:
        there = {name for name in os.listdir(folder) if _GPU.fullmatch(name)}
        for name in there - gpus.keys():
            os.unlink(name, dir_fd=folder)
        for name in gpus.keys() - there:
            _make(name, gpus[name], folder)
    finally:
        os.close(folder)


def _private_devices(process: int) -> int:
    """Return the descriptor of a process's own /dev. Raises OSError if it has none. process: its folder in /proc."""
    root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        folder = os.open(
            FOLDER.removeprefix("/"), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root
        )
    finally:
        os.close(root)
    device = os.fstat(folder).st_dev
    with open("mountinfo", opener=partial(os.open, dir_fd=process)) as mounts:
        is_mounted = any(_is_of_devices(line, device) for line in mounts)
    if not is_mounted or device == os.stat(FOLDER).st_dev:
        os.close(folder)
        raise OSError(errno.EBUSY, "it has no devices of its own")
    return folder


def _is_of_devices(mount: str, device: int) -> bool:
    """Return whether a line of /proc/<pid>/mountinfo is the mount of a private /dev, and no folder of that name."""
    words, _, file_system = mount.partition(" - ")
    _, _, number, top, place, *_ = words.split()
    of = f"{os.major(device)}:{os.minor(device)}"
    return (number, top, place) == (of, "/", FOLDER) and file_system.startswith("tmpfs ")


def _make(name: str, device: Device, folder: int) -> None:
    kind = stat.S_IFCHR if device.kind == "c" else stat.S_IFBLK
    os.mknod(name, kind | _EVERYBODY, os.makedev(device.major, device.minor or 0), dir_fd=folder)
    os.chmod(name, _EVERYBODY, dir_fd=folder)
