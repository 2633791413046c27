"""A hostile training: it tries to get through its wall in every way of a list, and writes how each attempt ended.

Runs by any Python of this machine: `python hostile.py FACTS RESULTS [NAME...]`. FACTS: a file with places, ports
and processes, from `tests/confine/site_scene.py`. RESULTS: a file for `{name: "done" | name of an error}`. NAME: of
attempts to make; all of them if none is named.
"""

import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_MPTCP, _FAST_OPEN = 262, 0x20000000
_PTRACE_ATTACH, _NEW_USER_AND_MOUNTS = 16, 0x10020000


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _read(path: str) -> None:
    with open(path, "rb") as stream:
        stream.read(1)


def _append(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, b"\0")
    finally:
        os.close(descriptor)


def _connect(family: int, address: Any, protocol: int = 0) -> None:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as client:
        client.settimeout(5)
        client.connect(address)


def _fast_open(address: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.sendto(b"PING\r\n", _FAST_OPEN, address)


def _mount(options: int) -> None:
    _checked(_libc.mount(b"none", b"/", b"", ctypes.c_ulong(options), None))


def _unmount(path: str) -> None:
    _checked(_libc.umount2(os.fsencode(path), 2))
    _read(os.path.join(path, "secret-key"))


def _mount_anew(path: str) -> None:
    """Uncover a place in a user namespace, where the process has all capabilities."""
    _checked(_libc.unshare(_NEW_USER_AND_MOUNTS))
    _checked(_libc.umount2(os.fsencode(path), 2))


def _attach(pid: int) -> None:
    _checked(_libc.ptrace(_PTRACE_ATTACH, pid, None, None))


def _memory_of(pid: int) -> None:
    class Part(ctypes.Structure):
        _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))

    here = ctypes.create_string_buffer(8)
    local, remote = Part(ctypes.addressof(here), 8), Part(0x400000, 8)
    _checked(_libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))


def _descriptor_of(pid: int) -> None:
    with os.fdopen(os.pidfd_open(pid), "rb", closefd=True, buffering=0) as handle:
        _checked(_libc.syscall(438, handle.fileno(), 0, 0))


def _become(uid: int) -> None:
    os.setresuid(uid, uid, uid)


def _setuid_program(folder: str) -> None:
    """Have a program start with root's rights."""
    program = shutil.copy(shutil.which("id") or "/usr/bin/id", os.path.join(folder, "id"))
    os.chmod(program, 0o4755)
    found = subprocess.run([program, "-u"], capture_output=True, text=True, check=True).stdout.strip()
    if os.geteuid() == 0 or found != "0":
        raise PermissionError(errno.EPERM, "no other rights than before")


def _follow_link(folder: str, target: str) -> None:
    link = os.path.join(folder, "link")
    Path(link).unlink(missing_ok=True)
    os.symlink(target, link)
    _read(link)


def _hard_link(folder: str, target: str) -> None:
    os.link(target, os.path.join(folder, "hard"))
    _read(os.path.join(folder, "hard"))


def _rename_over(folder: str, target: str) -> None:
    mine = Path(folder, "mine")
    mine.write_text("forged")
    mine.rename(target)


def _attach_memory(segment: int) -> None:
    """Get at memory that processes of System V share. Not attached is a pointer with all bits set."""
    _libc.shmat.restype = ctypes.c_void_p
    if _libc.shmat(segment, None, 0) == ctypes.c_void_p(-1).value:
        _checked(-1)


def _open_queue(name: str) -> None:
    _libc_of_queues = ctypes.CDLL("librt.so.1", use_errno=True)
    descriptor = _libc_of_queues.mq_open(name.encode(), os.O_RDONLY)
    _checked(descriptor)
    os.close(descriptor)


def _limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))


def _keys() -> None:
    """The keyring that all processes of this user share."""
    number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    _checked(_libc.syscall(number, 0, -4, 1, 0, 0))


def _rings() -> None:
    _checked(_libc.syscall(425, 4, ctypes.create_string_buffer(120)))


def _device(folder: str) -> None:
    os.mknod(os.path.join(folder, "disk"), 0o060600, os.makedev(254, 0))


#: Name -> the attempt, and what withstands it: files, view, scopes, ports, calls, users or devices.
def attempts(facts: dict[str, Any]) -> dict[str, tuple[str, Callable[[], None]]]:
    home, own, other, victim = facts["home"], facts["own"], facts["other"], facts["victim"]
    site, closed = facts["site"], ("127.0.0.1", facts["closed_port"])
    return {
        "read the secret key": ("files", lambda: _read(f"{home}/secret-key")),
        "read the administrator's password": ("files", lambda: _read(f"{home}/admin-password")),
        "read the database": ("files", lambda: _read(f"{home}/tidepool.sqlite3")),
        "write the database": ("files", lambda: _append(f"{home}/tidepool.sqlite3")),
        "read the broker's password": ("files", lambda: _read(f"{home}/run/broker-url")),
        "read another user's results": ("files", lambda: _read(f"{other}/attempt-1/value.pkl")),
        "write another user's value": ("files", lambda: _append(f"{other}/attempt-1/value.pkl")),
        "read another user's code": ("files", lambda: _read(f"{other}/_submitted_code/model/train.py")),
        "change another user's code": ("files", lambda: _append(f"{other}/_submitted_code/model/train.py")),
        "read another user's launch file": ("files", lambda: _read(f"{other}/attempt-1/launch.host-a.json")),
        "read another user's access to MLflow": ("files", lambda: _read(f"{other}/.access/1.json")),
        "list another user's trainings": ("files", lambda: os.listdir(os.path.dirname(other)) and None),
        "read a dataset that was not given": ("files", lambda: _read(f"{home}/data/theirs/images")),
        "change the dataset that was given": ("files", lambda: _append(f"{home}/data/given/images")),
        "remove the dataset that was given": ("files", lambda: os.unlink(f"{home}/data/given/images")),
        "change a cached environment": ("files", lambda: _append(f"{facts['environment']}/package.py")),
        "add to a cached environment": (
            "files",
            lambda: Path(facts["environment"], "evil.pth").write_text("") and None,
        ),
        "change the site's packages": ("files", lambda: Path(site, "evil.pth").write_text("import os") and None),
        "change the checkout": ("files", lambda: _append(facts["checkout"])),
        "open the disk": ("files", lambda: _read(facts["disk"])),
        "make a device": ("files", lambda: _device(own)),
        "read the machine's passwords": ("files", lambda: _read_something("/etc/shadow")),
        "read the home of the service's user": ("files", lambda: os.listdir(facts["user_home"]) and None),
        "follow a link out of its folder": ("files", lambda: _follow_link(own, f"{home}/secret-key")),
        "link another user's file": ("files", lambda: _hard_link(own, f"{other}/attempt-1/value.pkl")),
        "rename a file over another user's": ("files", lambda: _rename_over(own, f"{other}/attempt-1/value.pkl")),
        "read by another process's root": ("files", lambda: _read(f"/proc/{victim}/root{home}/secret-key")),
        "read another process's environment": ("files", lambda: _read(f"/proc/{victim}/environ")),
        "attach to another process": ("files", lambda: _attach(victim)),
        "read another process's memory": ("files", lambda: _memory_of(victim)),
        "take another process's open file": ("files", lambda: _descriptor_of(victim)),
        "mount": ("files", lambda: _mount(1 << 14 | 1 << 18)),
        "uncover the home": ("files", lambda: _unmount(home)),
        "uncover it in a namespace of its own": ("files", lambda: _in_child(lambda: _mount_anew(home))),
        "become root": ("files", lambda: _become(0) if os.geteuid() else _become(1)),
        "run a setuid program": ("files", lambda: _setuid_program(own)),
        "change the kernel's settings": ("files", lambda: _append("/proc/sys/kernel/core_pattern")),
        "connect to the broker's socket": ("view", lambda: _connect(socket.AF_UNIX, f"{home}/run/broker.sock")),
        "close the home to everybody": ("view", lambda: os.chmod(f"{home}/secret-key", 0)),
        "change times of another user's file": ("view", lambda: os.utime(f"{other}/attempt-1/value.pkl", (1, 1))),
        "read another training's temporary files": ("view", lambda: _read(facts["temporary"])),
        "read another training's shared memory": ("view", lambda: _read(facts["shared_memory"])),
        "attach another training's memory of System V": ("view", lambda: _attach_memory(facts["segment"])),
        "open another training's message queue": ("view", lambda: _open_queue(facts["queue"])),
        "connect to an abstract socket": ("scopes", lambda: _connect(socket.AF_UNIX, f"\0{facts['abstract']}")),
        "signal another process": ("scopes", lambda: os.kill(victim, signal.SIGUSR1)),
        "connect to the database's port": ("ports", lambda: _connect(socket.AF_INET, closed)),
        "connect to it by multipath TCP": ("calls", lambda: _connect(socket.AF_INET, closed, _MPTCP)),
        "connect to it by TCP fast open": ("calls", lambda: _fast_open(closed)),
        "connect to it by io_uring": ("calls", _rings),
        "read the user's keys": ("calls", _keys),
        "limit another process's time": ("calls", lambda: _limit(victim)),
        "become the service's user": ("users", lambda: _become_owner(facts["owner"])),
        "have a right": ("users", _have_a_right),
        "see another process": ("users", lambda: os.stat(f"/proc/{victim}") and None),
        "show all processes": ("users", lambda: _checked(_libc.mount(b"proc", b"/proc", b"proc", 0, None))),
        "see processes by the guardian's descriptors": ("users", lambda: _descriptors_of_others(victim)),
        "enter another process's space": ("users", lambda: _enter_space("/proc/1/ns/pid")),
        "give a file to another user": ("users", lambda: os.chown(_made(own), facts["owner"], facts["owner"])),
        "make a program that runs as another user": ("users", lambda: _own_by(facts["owner"], own)),
        "open a neighbour's GPU": ("devices", lambda: _open_device(facts.get("gpu", "/dev/nvidia0"))),
        "find other terminals": ("devices", _other_terminals),
    }


def _become_owner(owner: int) -> None:
    if os.geteuid() == owner:
        return
    os.setresuid(owner, owner, owner)


def _have_a_right() -> None:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if not any(int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")):
        raise PermissionError(errno.EPERM, "none")


def _descriptors_of_others(victim: int) -> None:
    """Reach the host's processes by a descriptor that another process of this space has open."""
    for folder in Path("/proc").glob("[0-9]*/fd"):
        for descriptor in folder.iterdir():
            try:
                (descriptor / ".." / ".." / str(victim) / "status").read_text()
                return
            except OSError:
                continue
    raise PermissionError(errno.EPERM, "none leads there")


def _enter_space(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _checked(_libc.setns(descriptor, 0))
    finally:
        os.close(descriptor)


def _made(folder: str) -> str:
    place = os.path.join(folder, "made")
    Path(place).touch()
    return place


def _open_device(place: str) -> None:
    os.close(os.open(place, os.O_RDONLY))


def _other_terminals() -> None:
    if not [name for name in os.listdir("/dev/pts") if name != "ptmx"]:
        raise FileNotFoundError(errno.ENOENT, "there are none of others")


def _own_by(owner: int, folder: str) -> None:
    """Have a file on the disk that starts with the rights of the service's user."""
    place = _made(folder)
    os.chmod(place, 0o4755)
    if os.geteuid() == owner or os.stat(place).st_uid != owner:
        raise PermissionError(errno.EPERM, "it is this user's, and mounted without effect")


def _read_something(path: str) -> None:
    with open(path, "rb") as stream:
        if not stream.read(1):
            raise FileNotFoundError(errno.ENOENT, "covered by an empty file")


def _in_child(attempt: Callable[[], None]) -> None:
    """Namespaces cannot be left: make the attempt in a child, which ends with its error."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            attempt()
        except OSError as error:
            code = error.errno or 255
        os._exit(code)
    if number := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(number, os.strerror(number))


def main() -> None:
    facts = json.loads(Path(sys.argv[1]).read_text())
    ends = {}
    for name, (_, attempt) in attempts(facts).items():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        try:
            attempt()
            ends[name] = "done"
        except OSError as error:
            ends[name] = errno.errorcode.get(error.errno or 0, str(error))
    Path(sys.argv[2]).write_text(json.dumps(ends))


if __name__ == "__main__":
    main()
