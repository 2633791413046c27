"""Clients of this host's forkservers: each connects by its socket, and starts a forkserver if none answers.

The cluster's own packages have one as long as the executor runs. An environment that has nothing of them has one while
jobs use it, and for some minutes longer.
"""

import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import tidepool
from tidepool import json_sockets, procfs
from tidepool.backoff import Backoff, Interval
from tidepool.confine.levels import Abilities
from tidepool.confine.wall import Wall
from tidepool.inherited_environment import fabric_variables, inherited_environment
from tidepool.protocol import DesiredMembership, LaunchSpec, ShimSpec, to_json

from workers.executor.environments.cache import Ready
from workers.executor.environments.engines import ContainerSpec, outermost
from workers.executor.environments.given import python_of
from workers.executor.environments.images import image_engine, needs_folder
from workers.executor.environments.requirements import has_tested_torch

__all__ = ["Forkserver", "ForkserverError", "Forkservers"]

logger = logging.getLogger(__name__)

#: Seconds that a new forkserver has for its first answer.
_START_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
#: Seconds without an answer before a forkserver that has answered before is restarted: the host may be busy.
_SILENCE_SECONDS = 20.0

#: Seconds for which the forkserver of an environment is kept that no job uses.
_KEPT_SECONDS = 600.0
#: Seconds between two readings of the memory of forkservers, and the bytes to which a reading is rounded up.
_MEMORY_SECONDS = 30.0
_MEMORY_UNIT = 8 * 2**20
_NAME = "forkserver"
_RUNTIME = Path(tidepool.__file__).resolve().parents[1]


class ForkserverError(RuntimeError):
    """The forkserver does not answer, or refuses a request; the next cycle tries again."""


@dataclass(frozen=True)
class _Runs:
    """The Python that a forkserver runs on."""

    python: Path
    #: See `tidepool.forkserver`.
    is_bare: bool = False
    #: Container image that has the Python; "": this machine has it.
    image: str = ""
    #: Folder of all trainings, and other folders that they read, which the container has at the same paths.
    pool: Path = Path()
    data: tuple[Path, ...] = ()
    #: Folders of packages beside those of the Python, which nobody has made for Tidepool.
    packages: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # An image has its own paths; those of this machine mean nothing in it. The network is this machine's.
        inherited = fabric_variables(os.environ) if self.image else inherited_environment(os.environ)
        # Packages in the home of the user who runs the executor are no part of it.
        closed = {"PYTHONNOUSERSITE": "1"} if self.packages else {}
        return {
            **threads,  # a process that forks must have one thread
            **inherited,
            **closed,
            "PYTHONPATH": os.pathsep.join(map(str, (_RUNTIME, *self.packages))),
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # detecting GPUs must not create a CUDA context
            procfs.MARK_VARIABLE: procfs.reserved_mark(),
        }


class Forkserver:
    def __init__(
        self,
        folder: Path,
        lifeline_fd: int | None,
        name: str = _NAME,
        runs: "_Runs | None" = None,
        words: Sequence[str] = (),
    ) -> None:
        """folder: of the sockets and records of this host. words: further ones of its command line."""
        self._words = words
        self.socket = json_sockets.socket_path(folder / f"{name}.sock")
        self._log = folder / f"{name}.log"
        self._lifeline_fd = lifeline_fd
        self.runs = runs or _Runs(Path(sys.executable))
        self._process: subprocess.Popen[bytes] | None = None
        #: Mechanisms of the kernel that keep its trainings apart; None: it has not answered yet.
        self.abilities: Abilities | None = None
        #: Number of its process as last told; None: it has not answered yet.
        self._pid: int | None = None
        self._started_at = 0.0
        self._answered_at = 0.0
        self._backoff = Backoff(first_seconds=1.0, longest_seconds=30.0)

    def ready(self) -> bool:
        """Return whether the forkserver answers. If not, start one without waiting for it."""
        try:
            answer = self._ask({"op": "ping"})
            self._pid = answer["pid"]
        except ForkserverError as error:
            self._start(str(error))
            return False
        is_former = "abilities" not in answer or not answer.get("handshake")
        if is_former or bool(self._words) != bool(answer.get("tried_users")):
            why = "it is of a former version without walls or handshake" if is_former else "its isolation has changed"
            logger.info("forkserver pid=%s: ended, %s", self._pid, why)
            self.end()
            return False
        self.abilities = Abilities.from_json(answer["abilities"])
        self._backoff.reset()
        self._answered_at = time.monotonic()
        return True

    def fork_shim(self, spec: ShimSpec, socket: Path, wall: Wall | None = None) -> int:
        """Fork a shim and return its pid; its socket listens already. wall: around it and its ranks; None: none."""
        request = {"op": "shim", "spec": to_json(spec), "socket": str(socket)}
        return int(self._ask({**request, "wall": wall and asdict(wall)})["pid"])

    def fork_coordinator(
        self,
        desired: DesiredMembership,
        launch: LaunchSpec,
        *,
        address: str,
        host: str,
        mark: str,
        socket: Path,
        wall: Wall | None = None,
    ) -> int:
        request = {"op": "coordinator", "desired": to_json(desired), "launch": to_json(launch), "socket": str(socket)}
        place = {"address": address, "host": host, "mark": mark, "wall": wall and asdict(wall)}
        return int(self._ask({**request, **place})["pid"])

    def memory_bytes(self) -> int:
        """Return its memory that is no file's, rounded up; 0 if it does not run. Its children have some in common."""
        try:
            found = psutil.Process(self._pid).memory_info() if self._pid else None
        except psutil.NoSuchProcess:
            found = None
        return -(-(found.rss - found.shared) // _MEMORY_UNIT) * _MEMORY_UNIT if found else 0

    def end(self) -> None:
        """End the forkserver; its children live on."""
        with suppress(ForkserverError, psutil.NoSuchProcess):
            procfs.kill(psutil.Process(self._ask({"op": "ping"})["pid"]))
        if self._process is not None and not self.runs.image:
            self._process.kill()
            self._process.wait(_ANSWER_SECONDS)
        self.socket.unlink(missing_ok=True)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            line = json_sockets.request(self.socket, json.dumps(question).encode() + b"\n", _ANSWER_SECONDS)
            answer: dict[str, Any] = json.loads(line)
        except (OSError, json_sockets.PeerError, ValueError) as error:
            raise ForkserverError(f"the forkserver does not answer: {error}") from error
        if "error" in answer:
            raise ForkserverError(f"the forkserver refuses: {answer['error']}")
        return answer

    def _start(self, why: str) -> None:
        now = time.monotonic()
        limit = _SILENCE_SECONDS if self._answered_at > self._started_at else _START_SECONDS
        silence = now - max(self._answered_at, self._started_at)
        running = self._process is not None and self._process.poll() is None
        if now < self._backoff.until or (running and silence < limit):
            return
        if self._process is not None:
            logger.warning("forkserver pid=%s: started again: %s (see %s)", self._process.pid, why, self._log)
            if self.runs.image:
                self._process.terminate()  # its forkserver ends; the container stays until its last process has ended
            else:
                self._process.kill()
                self._process.wait(_ANSWER_SECONDS)
        self._started_at = time.monotonic()
        self._backoff.add(self._started_at)
        self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        words = ["-P", "-m", "tidepool.forkserver", "--socket", str(self.socket)]
        words += [*(["--bare"] if self.runs.is_bare else []), *self._words]
        lifeline = () if self._lifeline_fd is None else (self._lifeline_fd,)
        environment = self.runs.environment()
        if self.runs.image:
            engine = image_engine(os.environ)
            folders = [self.socket.parent, self.runs.pool]
            read_only = [_RUNTIME, *self.runs.packages, *self.runs.data]
            container = ContainerSpec(self.runs.image, folders, read_only, [*environment], keeps_fd=bool(lifeline))
            moved = "".join(f"exec {engine.kept_fd}<&{fd}; " for fd in lifeline)
            command = ["sh", "-c", f'{moved}exec "$@"', "sh", *engine.command(container), *words, "--hold"]
            command += ["--lifeline-fd", str(engine.kept_fd)] if lifeline else []
            given = {engine.variable_prefix + name: value for name, value in environment.items()}
            environment = {**os.environ, **given}
        else:
            command = [str(self.runs.python), *words, *(part for fd in lifeline for part in ("--lifeline-fd", str(fd)))]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=lifeline,
                start_new_session=True,
            )


class Forkservers:
    """The forkserver of the cluster's packages, and those of whole environments. Used by the supervisor's thread."""

    def __init__(
        self, folder: Path, home: Path, lifeline_fd: int | None, *, idle_most: int = 4, words: Sequence[str] = ()
    ) -> None:
        """folder: of the sockets and records of this host. home: the pool, which containers have.

        idle_most: number of environments without a job whose forkserver is kept. words: see `Forkserver`.
        """
        self._idle_most = idle_most
        self._words = words
        self._memory: dict[str, int] = {}
        self._measuring = Interval(_MEMORY_SECONDS)
        self.own = Forkserver(folder, lifeline_fd, words=words)
        self._home = home
        self._folder = folder
        self._lifeline_fd = lifeline_fd
        self._others: dict[str, Forkserver] = {}
        self._used_at: dict[str, float] = {}

    @property
    def names(self) -> Collection[str]:
        """Names of the whole environments that have one."""
        return self._others.keys()

    def memory(self) -> Mapping[str, int]:
        """Return the memory in bytes of the forkserver of each environment that has one, by the environment's name."""
        if self._measuring.is_due(time.monotonic()):
            found = Counter[str]()
            for name, server in self._others.items():
                found[name.partition("-")[0]] += server.memory_bytes()
            self._memory = dict(+found)
        return self._memory

    def recall(self) -> None:
        """Take over the forkservers of an earlier executor, to end those that no job uses."""
        for log in self._folder.glob(f"{_NAME}-*.log"):
            name = log.stem.removeprefix(f"{_NAME}-")
            self._others[name] = Forkserver(self._folder, self._lifeline_fd, log.stem, words=self._words)
            self._used_at[name] = time.monotonic()

    def of(self, environment: Ready, folders: Sequence[Path]) -> Forkserver:
        """Return the forkserver of an environment; it may have to be started.

        folders: of the job. A container has its folders from the start: jobs with others outside of the pool have
        another container.
        """
        if not environment.is_whole:
            return self.own
        name, runs = Path(environment.folder).name, self._runs(environment, folders)
        if runs.data:
            name += f"-{hashlib.sha256(json.dumps([*map(str, runs.data)]).encode()).hexdigest()[:8]}"
        known = self._others.get(name)
        if known is None or known.runs != runs:  # one of an earlier executor is known by its name alone
            known = Forkserver(self._folder, self._lifeline_fd, f"{_NAME}-{name}", runs, self._words)
            self._others[name] = known
        self._used_at[name] = time.monotonic()
        return known

    def _runs(self, environment: Ready, folders: Sequence[Path]) -> _Runs:
        folder, is_bare = Path(environment.folder), not has_tested_torch(environment.torch)
        if environment.given:
            return _Runs(python_of(Path(environment.given)), is_bare, packages=(needs_folder(folder),))
        if not environment.image:
            return _Runs(folder / "bin" / "python", is_bare)
        data = tuple(place for place in outermost(folders) if not place.is_relative_to(self._home))
        return _Runs(Path(), is_bare, environment.image, self._home, data, (needs_folder(folder),))

    def end_unused(self, used: Container[str]) -> None:
        """End forkservers of environments that no job uses any longer. used: names of the others' folders."""

        def is_used(name: str) -> bool:
            return name.partition("-")[0] in used

        now = time.monotonic()
        unused = sorted((at, name) for name, at in self._used_at.items() if not is_used(name))
        for place, (at, name) in enumerate(reversed(unused)):
            if place >= self._idle_most or now - at > _KEPT_SECONDS:
                self._end(name)
        self._used_at |= {name: now for name in self._used_at if is_used(name)}

    def end(self) -> None:
        """End all of them; their children live on."""
        self.own.end()
        for name in [*self._others]:
            self._end(name)

    def _end(self, name: str) -> None:
        logger.info("environment=%s: its forkserver is ended, no training uses it", name)
        del self._used_at[name]
        self._others.pop(name).end()
        (self._folder / f"{_NAME}-{name}.log").unlink(missing_ok=True)
