"""Machines for tests: each has a network, host name, processes, mounts and a `/tmp` of its own, on one bridge.

All of them are namespaces of this machine. They hang on processes that end when this one does, however it ends: with
the last process of a namespace the kernel removes its network, and with that the other ends of its cables.

A shared folder lies at the same path on every machine, and here. Here, too, the network is reached at `Network.here`.
"""

import itertools
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import wait_until

__all__ = ["ROOT", "Machine", "Network", "running_machines", "why_impossible"]

ROOT = Path(__file__).resolve().parents[2]
_NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount")
_numbers = itertools.count(1)


def why_impossible() -> str | None:
    """Return what this machine or user lacks; None where machines can be made."""
    missing = [program for program in ("ip", "unshare", "nsenter") if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is missing: sudo apt-get install iproute2 util-linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True, check=False).returncode:
        return "root may make no namespaces here"
    return None


@dataclass
class Machine:
    name: str
    address: str
    #: Process id of the machine's first process, outside its namespace.
    pid: int
    #: Ends of its cable: its own, and the one in the bridge, which `_bridge` is the first process of.
    _cable: str
    _bridge: int
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    def inside(self, *command: str | Path, folder: Path = ROOT) -> list[str]:
        """The command line that runs a command there."""
        enter = ["nsenter", "--target", str(self.pid), *_NAMESPACES, "--", "env", "-C", str(folder)]
        return [*enter, *map(str, command)]

    def run(self, *command: str | Path, **options: Any) -> str:
        """Run a command there and return its output; fails with it."""
        done = subprocess.run(
            self.inside(*command), capture_output=True, text=True, timeout=120, check=False, **options
        )
        assert done.returncode == 0, f"{self.name}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *command: str | Path, **options: Any) -> subprocess.Popen[Any]:
        process = subprocess.Popen(self.inside(*command), **options)
        self.started.append(process)
        return process

    def python(self, code: str, **environment: str) -> str:
        """Run a Python there with our packages and return its output."""
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}", **environment}
        return self.run(sys.executable, "-c", code, env=variables).strip()

    def processes(self, title: str) -> list[psutil.Process]:
        """Return its processes whose command line contains `title`, as they are numbered outside."""
        space = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        found = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                is_there = os.stat(f"/proc/{process.pid}/ns/pid").st_ino == space
                if is_there and title in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def unplug(self) -> None:
        """Pull the cable: nothing is closed, nothing arrives any more."""
        self._set_cable("down")

    def plug(self) -> None:
        self._set_cable("up")

    def slow_down(self, bits_per_second: int) -> None:
        """Let no more than that arrive over its cable."""
        shape = ("tbf", "rate", f"{bits_per_second}bit", "burst", "64kb", "latency", "200ms")
        _run(*_in_network(self._bridge), "tc", "qdisc", "add", "dev", self._cable, "root", *shape)

    def connect_to(self, bridge: str) -> None:
        """Move its cable to another of the bridges: it reaches only who is on the same one."""
        self._set_cable("master", bridge)

    def _set_cable(self, *state: str) -> None:
        _run(*_in_network(self._bridge), "ip", "link", "set", self._cable, *state)

    def crash(self) -> None:
        """End everything there. What it was connected with hears of it, unless it was unplugged before."""
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).kill()
        for process in self.started:
            process.wait()


@dataclass(frozen=True)
class Network:
    #: The shared folder.
    shared: Path
    #: Address of this machine in the network.
    here: str
    machines: list[Machine]

    def cut_off(self, *names: str) -> None:
        """Cut these machines off from the others and from here; they still reach each other, and the shared folder."""
        for machine in self.machines:
            if machine.name in names:
                machine.connect_to("apart")

    def heal(self) -> None:
        for machine in self.machines:
            machine.connect_to("tide")


@contextmanager
def running_machines(count: int, *, ipv6: bool = False) -> Iterator[Network]:
    """`gpu1`, `gpu2`, ... Whose name leads to 127.0.1.1, as Debian has it. ipv6: the network has no IPv4."""
    # 198.18.0.0/15 is for tests of networks. Short paths: unix sockets lie below the shared folder.
    number = secrets.randbelow(256)
    subnet = f"fd00:7de::{number:x}:" if ipv6 else f"198.18.{number}."
    with ExitStack() as stack:
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tide", dir="/tmp")))
        bridges = "; ".join(f"ip link add {name} type bridge; ip link set {name} up" for name in ("tide", "apart"))
        bridge = stack.enter_context(_namespaces("--net", setup=bridges))
        own_end = _lay_cable(bridge, os.getpid(), f"{subnet}1")[0]
        stack.callback(subprocess.run, ["ip", "link", "delete", own_end], check=True)
        machines = []
        for number in range(1, count + 1):
            name, address = f"gpu{number}", f"{subnet}{10 + number}"
            pid = stack.enter_context(_namespaces(*_NAMESPACES, setup=_machine_setup(name, shared)))
            machine = Machine(name, address, pid, _lay_cable(bridge, pid, address)[1], bridge)
            stack.callback(machine.crash)
            machines.append(machine)
        yield Network(shared, f"{subnet}1", machines)


def _machine_setup(name: str, shared: Path) -> str:
    """Keep what lies below /tmp here and is needed there; the rest of /tmp is its own."""
    kept = {path for path in (shared, ROOT, Path(sys.prefix), Path(sys.base_prefix)) if path.is_relative_to("/tmp")}
    lines = ["mount --make-rprivate /", "mount -t tmpfs none /mnt"]
    lines += [f"mkdir /mnt/{number}; mount --bind {path} /mnt/{number}" for number, path in enumerate(kept)]
    lines += ["mount -t tmpfs none /tmp", "chmod 1777 /tmp"]
    lines += [f"mkdir -p {path}; mount --bind /mnt/{number} {path}" for number, path in enumerate(kept)]
    hosts = f"127.0.0.1 localhost\n127.0.1.1 {name}\n"
    lines += [f"printf {shlex.quote(hosts)} > /mnt/hosts", "mount --bind /mnt/hosts /etc/hosts", "umount -l /mnt"]
    lines += ["mount -t proc proc /proc", f"hostname {name}", "ip link set lo up"]
    return "; ".join(lines)


@contextmanager
def _namespaces(*kinds: str, setup: str) -> Iterator[int]:
    """The first process in new namespaces. It reaps what others leave, and ends with our end of its pipe."""
    command = ["unshare", *kinds, "--fork", "--kill-child", "sh", "-ec", f"{setup}; echo; trap '' CHLD; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"\n", "the namespaces could not be set up"
            yield psutil.Process(holder.pid).children()[0].pid
        finally:
            holder.kill()


def _lay_cable(bridge: int, pid: int, address: str) -> tuple[str, str]:
    """Connect the network of process `pid` with the bridge; the names of both ends."""
    number = f"{os.getpid() % 10**6}-{next(_numbers)}"
    own, other = f"tm{number}", f"tb{number}"
    _run("ip", "link", "add", own, "type", "veth", "peer", "name", other, "netns", str(bridge))
    enter_bridge = _in_network(bridge)
    _run(*enter_bridge, "ip", "link", "set", other, "master", "tide", "up")
    if pid != os.getpid():
        _run("ip", "link", "set", own, "netns", str(pid))
    enter = _in_network(pid)
    is_ipv6 = ":" in address
    # "nodad": the address is used at once, not after a second of asking whether others have it.
    _run(*enter, "ip", "address", "add", f"{address}/{112 if is_ipv6 else 24}", "dev", own, *(["nodad"] * is_ipv6))
    _run(*enter, "ip", "link", "set", own, "up")
    # The kernel forwards nothing over a new port of a bridge until it has looked at it.
    wait_until(lambda: "forwarding" in _said(*enter_bridge, "bridge", "-d", "link", "show", "dev", other), "the port")
    return own, other


def _in_network(pid: int) -> tuple[str, ...]:
    return ("nsenter", "--target", str(pid), "--net")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
