"""Parts of the embedded stack that are forked from `up`, whose memory they share: it has loaded Django and the project.

A part that was forked has 20 MiB of its own, in place of 90 to 130 after it has loaded everything itself. `up` has one
thread, and closes its connections before each fork.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tidepool import procfs

from core.broker import connect
from core.process import fork, share_memory

__all__ = ["STOP_SIGNALS", "ForkedProcess", "load_parts"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REAP_SECONDS = 0.02
#: Modules that load what the parts need, in addition to the models and what `up` itself needs.
_LOADED = (
    "webapp.urls",
    "webapp.consumers",
    "webapp.embedded.serve",
    "jobs.tasks",
    "usage.tasks",
    "jobs.management.commands.run_scheduler",
    "jobs.management.commands.take_reports",
    "webapp.management.commands.run_background",
)


def load_parts() -> None:
    """Load what parts need, so that they share it."""
    for name in _LOADED:
        importlib.import_module(name)
    share_memory()


class ForkedProcess:
    """A child that runs `work`, with the methods of `subprocess.Popen` that the stack uses."""

    def __init__(
        self, name: str, work: Callable[[], object], environment: dict[str, str], folder: Path, log: BinaryIO
    ) -> None:
        def run() -> None:
            _become(name, environment, folder, log)
            work()

        connect().connection_pool.disconnect()
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal between the fork and the end of `_become` would reach the handlers of `up`, and be lost.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self.pid = fork(name, run)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Reap the process if it has ended; return its exit code, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_REAP_SECONDS)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _become(name: str, environment: dict[str, str], folder: Path, log: BinaryIO) -> None:
    """Make this fork as independent of `up` as a process that was started: session, signals, files, environment."""
    os.setsid()
    procfs.set_title(f"tidepool {name}")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    # The lock of the home and the lifeline of the ranks are among them: they must end with `up` alone.
    procfs.close_descriptors({0, 1, 2})
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
