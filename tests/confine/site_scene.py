"""A site with secrets, and another user's training: what a hostile training would like to get at."""

import ctypes
import json
import os
import socket
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidepool.confine.wall import Wall

__all__ = ["FUSE", "TUN", "Scene", "made_gpu", "scene"]

_FILES = (
    *("secret-key", "admin-password", "tidepool.sqlite3", "run/broker-url", "data/theirs/images", "data/given/images"),
    *("results/bob/batchworkdir/9/attempt-1/value.pkl", "results/bob/batchworkdir/9/attempt-1/launch.host-a.json"),
    *("results/bob/batchworkdir/9/_submitted_code/model/train.py", "results/bob/batchworkdir/9/.access/1.json"),
    "run/.environments/abc/package.py",
)


_IPC_RMID, _IPC_SET, _IPC_STAT = 0, 1, 2
#: Devices that stand for GPUs: opening them is harmless, and no program needs them.
TUN, FUSE = os.makedev(10, 200), os.makedev(10, 229)


@contextmanager
def made_gpu(number: int) -> Iterator[str]:
    """Make a file in /dev with the name of a GPU that this machine does not have, for a device; yield its name."""
    for place in (Path(f"/dev/nvidia{minor}") for minor in range(200, 256)):
        try:
            os.mknod(place, stat.S_IFCHR | 0o666, number)
        except FileExistsError:
            continue
        break
    else:
        raise FileExistsError("there are GPUs with all of these numbers")
    place.chmod(0o666)
    try:
        yield place.name
    finally:
        place.unlink()


@contextmanager
def made_segment(user: int | None) -> Iterator[int]:
    """Make memory that processes of System V share, for a user; yield its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0, 4096, 0o1600)
    if number < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    if user is not None:
        facts = ctypes.create_string_buffer(256)  # begins with the key, the owner and the group
        libc.shmctl(number, _IPC_STAT, facts)
        struct.pack_into("=II", facts, 4, user, user)
        libc.shmctl(number, _IPC_SET, facts)
    try:
        yield number
    finally:
        libc.shmctl(number, _IPC_RMID, None)


@contextmanager
def made_queue(name: str, user: int | None) -> Iterator[str]:
    """Make a message queue of POSIX, for a user; yield its name."""
    librt = ctypes.CDLL("librt.so.1", use_errno=True)
    descriptor = librt.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "mq_open")
    if user is not None:
        os.fchown(descriptor, user, user)
    os.close(descriptor)
    try:
        yield name
    finally:
        librt.mq_unlink(name.encode())


@dataclass(frozen=True)
class Scene:
    folder: Path
    wall: Wall
    facts: dict[str, Any]

    @property
    def own(self) -> Path:
        return Path(self.facts["own"])

    def untouched(self) -> bool:
        """Return whether every file has the content, the mode and the time that it was made with."""
        files = [self.folder / "home" / name for name in _FILES]
        return all(
            (each.read_text(), each.stat().st_mode & 0o777, each.stat().st_mtime) == ("secret", 0o600, 1e9)
            for each in files
        )


@contextmanager
def scene(user: int | None = None) -> Iterator[Scene]:
    """Make the site, owned by a user; None: by this one."""
    with ExitStack() as stack:
        folder = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile"))))
        home = folder / "home"
        for name in _FILES:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("secret")
            (home / name).chmod(0o600)
            os.utime(home / name, (1e9, 1e9))
        for name in ("site", "user", "temporary", "home/results/alice/batchworkdir/7/attempt-1"):
            (folder / name).mkdir(parents=True)
        (folder / "checkout.py").touch()
        (folder / "tmp-of-another").write_text("secret")
        shared = stack.enter_context(tempfile.NamedTemporaryFile(dir="/dev/shm"))
        shared.write(b"secret")
        shared.flush()
        listeners = [
            stack.enter_context(socket.socket(family)) for family in (socket.AF_UNIX, socket.AF_UNIX, socket.AF_INET)
        ]
        abstract = folder.name
        for listener, address in zip(
            listeners, (str(home / "run/broker.sock"), f"\0{abstract}", ("127.0.0.1", 0)), strict=True
        ):
            listener.bind(address)
            listener.listen(64)
        port = listeners[2].getsockname()[1]
        own = home / "results/alice/batchworkdir/7/attempt-1"
        if user is not None:
            for place in (folder, *folder.rglob("*"), Path(shared.name)):
                os.chown(place, user, user)
        victim = subprocess.Popen(["/bin/sleep", "600"], user=user, group=user, env={"SECRET": "secret"})
        stack.callback(lambda: (victim.kill(), victim.wait()))
        facts = {
            "segment": stack.enter_context(made_segment(user)),
            "queue": stack.enter_context(made_queue(f"/{folder.name}", user)),
            "home": str(home),
            "own": str(own),
            "other": str(home / "results/bob/batchworkdir/9"),
            "environment": str(home / "run/.environments/abc"),
            "site": str(folder / "site"),
            "checkout": str(folder / "checkout.py"),
            "user_home": str(folder / "user"),
            "temporary": str(folder / "tmp-of-another"),
            "shared_memory": shared.name,
            "abstract": abstract,
            "victim": victim.pid,
            "owner": os.getuid() if user is None else user,
            "closed_port": port,
            "disk": next(
                (f"/dev/{name}" for name in ("vda", "sda", "nvme0n1", "xvda", "mem") if Path("/dev", name).exists()),
                "/dev/kmsg",
            ),
        }
        if os.getuid() == 0:
            facts["gpu"] = f"/dev/{stack.enter_context(made_gpu(TUN))}"
        (own / "facts.json").write_text(json.dumps(facts))
        wall = Wall(
            hidden=(str(home), str(folder / "tmp-of-another")),
            readable=(
                str(own.parent.parent),
                str(home / "data/given"),
                str(home / "run/.environments/abc"),
                str(folder / "site"),
            ),
            writable=(str(own),),
            temporary=str(folder / "temporary"),
            closed_ports=(port,),
        )
        yield Scene(folder, wall, facts)
