"""Clients of this host's forkservers: each connects by its socket, and starts a forkserver if none answers.

The cluster's own packages have one as long as the executor runs. An environment that has nothing of them has one while
jobs use it, and for some minutes longer.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Collection, Container
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import tidepool
from tidepool import json_sockets, procfs
from tidepool.backoff import Backoff
from tidepool.protocol import DesiredMembership, LaunchSpec, ShimSpec, to_json
from tidepool.rank_process import inherited_environment

from workers.executor.environments.cache import Ready
from workers.executor.environments.requirements import has_tested_torch

__all__ = ["Forkserver", "ForkserverError", "Forkservers"]

logger = logging.getLogger(__name__)

#: Seconds that a new forkserver has for its first answer.
_START_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
#: Seconds without an answer before a forkserver that has answered before is restarted: the host may be busy.
_SILENCE_SECONDS = 20.0

#: Seconds for which the forkserver of an environment is kept that no job uses, and number of those that are kept.
_KEPT_SECONDS = 600.0
_KEPT = 4
_NAME = "forkserver"


class ForkserverError(RuntimeError):
    """The forkserver does not answer, or refuses a request; the next cycle tries again."""


class Forkserver:
    def __init__(
        self,
        folder: Path,
        lifeline_fd: int | None,
        name: str = _NAME,
        python: Path = Path(sys.executable),
        *,
        is_bare: bool = False,
    ) -> None:
        """folder: of the sockets and records of this host. is_bare: see `tidepool.forkserver`."""
        self.socket = json_sockets.socket_path(folder / f"{name}.sock")
        self._log = folder / f"{name}.log"
        self._lifeline_fd = lifeline_fd
        self.python = python
        self._is_bare = is_bare
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._answered_at = 0.0
        self._backoff = Backoff(first_seconds=1.0, longest_seconds=30.0)

    def ready(self) -> bool:
        """Return whether the forkserver answers. If not, start one without waiting for it."""
        try:
            self._ask({"op": "ping"})
        except ForkserverError as error:
            self._start(str(error))
            return False
        self._backoff.reset()
        self._answered_at = time.monotonic()
        return True

    def fork_shim(self, spec: ShimSpec, socket: Path) -> int:
        """Fork a shim and return its pid; its socket listens already."""
        return int(self._ask({"op": "shim", "spec": to_json(spec), "socket": str(socket)})["pid"])

    def fork_coordinator(
        self, desired: DesiredMembership, launch: LaunchSpec, *, address: str, host: str, mark: str, socket: Path
    ) -> int:
        request = {"op": "coordinator", "desired": to_json(desired), "launch": to_json(launch), "socket": str(socket)}
        return int(self._ask({**request, "address": address, "host": host, "mark": mark})["pid"])

    def end(self) -> None:
        """End the forkserver; its children live on."""
        with suppress(ForkserverError, psutil.NoSuchProcess):
            procfs.kill(psutil.Process(self._ask({"op": "ping"})["pid"]))
        if self._process is not None:
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
            self._process.kill()
            self._process.wait(_ANSWER_SECONDS)
        self._started_at = time.monotonic()
        self._backoff.add(self._started_at)
        self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(self.python), "-P", "-m", "tidepool.forkserver", "--socket", str(self.socket)]
        command += ["--bare"] if self._is_bare else []
        lifeline = () if self._lifeline_fd is None else (self._lifeline_fd,)
        command += [part for fd in lifeline for part in ("--lifeline-fd", str(fd))]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd="/",
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=lifeline,
                start_new_session=True,
            )


class Forkservers:
    """The forkserver of the cluster's packages, and those of whole environments. Used by the supervisor's thread."""

    def __init__(self, folder: Path, lifeline_fd: int | None) -> None:
        self.own = Forkserver(folder, lifeline_fd)
        self._folder = folder
        self._lifeline_fd = lifeline_fd
        self._others: dict[str, Forkserver] = {}
        self._used_at: dict[str, float] = {}

    @property
    def names(self) -> Collection[str]:
        """Names of the whole environments that have one."""
        return self._others.keys()

    def recall(self) -> None:
        """Take over the forkservers of an earlier executor, to end those that no job uses."""
        for log in self._folder.glob(f"{_NAME}-*.log"):
            name = log.stem.removeprefix(f"{_NAME}-")
            self._others[name] = Forkserver(self._folder, self._lifeline_fd, log.stem)
            self._used_at[name] = time.monotonic()

    def of(self, environment: Ready) -> Forkserver:
        """Return the forkserver of an environment; it may have to be started."""
        if not environment.is_whole:
            return self.own
        name, python = Path(environment.folder).name, Path(environment.folder, "bin", "python")
        known = self._others.get(name)
        if known is None or known.python != python:  # one of an earlier executor is known by its name alone
            is_bare = not has_tested_torch(environment.torch)
            known = Forkserver(self._folder, self._lifeline_fd, f"{_NAME}-{name}", python, is_bare=is_bare)
            self._others[name] = known
        self._used_at[name] = time.monotonic()
        return known

    def end_unused(self, used: Container[str]) -> None:
        """End forkservers of environments that no job uses any longer. used: names of the others' folders."""
        now = time.monotonic()
        unused = sorted((at, name) for name, at in self._used_at.items() if name not in used)
        for place, (at, name) in enumerate(reversed(unused)):
            if place >= _KEPT or now - at > _KEPT_SECONDS:
                self._end(name)
        self._used_at |= {name: now for name in self._used_at if name in used}

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


def _environment() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **threads,  # a process that forks must have one thread
        **inherited_environment(dict(os.environ)),
        "PYTHONPATH": str(Path(tidepool.__file__).resolve().parents[1]),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # detecting GPUs must not create a CUDA context
        procfs.MARK_VARIABLE: procfs.reserved_mark(),
    }
