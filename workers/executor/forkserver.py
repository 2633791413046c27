"""Client of this host's forkserver: connects by its socket, and starts a forkserver if none answers."""

import json
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import tidepool
from tidepool import json_sockets, procfs
from tidepool.backoff import Backoff
from tidepool.protocol import DesiredMembership, LaunchSpec, ShimSpec, to_json
from tidepool.rank_process import inherited_environment

__all__ = ["Forkserver", "ForkserverError"]

logger = logging.getLogger(__name__)

#: Seconds that a new forkserver has for its first answer.
_START_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
#: Seconds without an answer before a forkserver that has answered before is restarted: the host may be busy.
_SILENCE_SECONDS = 20.0


class ForkserverError(RuntimeError):
    """The forkserver does not answer, or refuses a request; the next cycle tries again."""


class Forkserver:
    def __init__(self, folder: Path, lifeline_fd: int | None) -> None:
        self.socket = json_sockets.socket_path(folder / "forkserver.sock")
        self._log = folder / "forkserver.log"
        self._lifeline_fd = lifeline_fd
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
        command = [sys.executable, "-P", "-m", "tidepool.torch.forkserver", "--socket", str(self.socket)]
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


def _environment() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **threads,  # a process that forks must have one thread
        **inherited_environment(dict(os.environ)),
        "PYTHONPATH": str(Path(tidepool.__file__).resolve().parents[1]),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # detecting GPUs must not create a CUDA context
        procfs.MARK_VARIABLE: procfs.reserved_mark(),
    }
